"""The plan of a pipeline run: arms and settings, checked before any work, and a `PlannedRun` for each arm and seed.

Arms are networks from scratch, and published models, which others trained.
"""

import fnmatch
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError, NothingLeft, nearest
from tlm.evaluation.score.baseline import EMBEDDINGS, baseline
from tlm.evaluation.score.evaluate import evaluate
from tlm.progress import say
from tlm.retrieval.subset.export import PUBLISHED, TASK_ONLY, Selection, export, seed_of
from tlm.runs.advise import advice_for
from tlm.settings import presets
from tlm.settings.options import Compute, Filters
from tlm.settings.sections import Preset
from tlm.settings.selectors import RETRIEVED, draws
from tlm.shallow.folder import json_or_none
from tlm.training.distributed.launch import filled
from tlm.training.input.located import CONVERT, EXPECTED, WEIGHTS, model_folder, names_of, published_name
from tlm.training.input.tokenize import tokenize_all
from tlm.training.input.tokenizer import SIZES, adopt_tokenizer
from tlm.training.stages import load_model

ARMS = (TASK_ONLY, *RETRIEVED)
OF_PUBLISHED = (EMBEDDINGS, PUBLISHED, *(f"{PUBLISHED}-{text}" for text in ARMS))
FINETUNE, ADAPT = "finetune-published", "adapt"  # presets of published models: stage 2 alone, and both stages
KEPT = ("model.max_length=", "model.cut=", "model.spans_first=")  # overrides about texts, which any network reads alike
# classes of models that generate text; XLMWithLMHeadModel is an encoder
GENERATOR = re.compile(r"((?<!With)LMHeadModel|ForCausalLM|ForConditionalGeneration)$")


class Arms(NamedTuple):
    """The arms of a run.

    Attributes:
        scratch: The texts of the networks that are trained from scratch: some of `ARMS`.
        further: The texts that each published model trains on in stage 1; "" for stage 2 alone.
        embeddings: Whether there is a linear model of the embeddings of each published model.
        models: The places of the published models.
    """

    scratch: list[str]
    further: list[str]
    embeddings: bool
    models: list[str]

    @property
    def texts(self) -> list[str]:
        """The texts to select, each once; BM25's, which is exported in any case, if no arm needs one."""
        return [*dict.fromkeys([*self.scratch, *filter(None, self.further)])] or ["bm25"]


def preset_of(further: str, given: str) -> str:
    """The preset of a published model that trains on a text in stage 1, or on none (""): `given`, else its own."""
    return given or (ADAPT if further else FINETUNE)


def arm_of(model: str, further: str | None = "") -> str:
    """The name of the arm of a published model in reports; without a network to train (None), of its embeddings."""
    name = published_name(model)
    return f"{EMBEDDINGS}-{name}" if further is None else "-".join(filter(None, (PUBLISHED, name, further)))


def parse_arms(text: str, published: str = "", *, network: bool = True) -> Arms:
    """Return the arms written as 'bm25,random,published-bm25', with published models written as 'one,s3://…/other'.

    Published models that no arm names have the arm embeddings, and published where networks are trained.

    Raises:
        InputError: an arm is unknown, given twice, or cannot be had; or two models have one name.
    """
    arms, models = listed(text, "arms"), parse_models(published)
    for arm in arms:
        if arm not in (*ARMS, *OF_PUBLISHED):
            raise InputError(f"arms: '{arm}' is no arm{nearest(arm, (*ARMS, *OF_PUBLISHED))}")
        if arm in OF_PUBLISHED and not models:
            raise InputError(f"arms: '{arm}' needs a published model, and run_published names none; name one there")
        if arm.startswith(PUBLISHED) and not network:
            raise InputError(
                f"arms: '{arm}' trains a network, and this pipeline trains none; take the arm {EMBEDDINGS}"
            )
    if models and not {*arms} & {*OF_PUBLISHED}:
        arms += [EMBEDDINGS, PUBLISHED] if network else [EMBEDDINGS]
    further = [arm.removeprefix(PUBLISHED).removeprefix("-") for arm in arms if arm.startswith(PUBLISHED)]
    return Arms([arm for arm in arms if arm in ARMS], further, EMBEDDINGS in arms, models)


def parse_models(text: str) -> list[str]:
    """Return the places of published models written as 'one,s3://…/other'.

    Raises:
        InputError: two have the same name, or a name would be read as something else in the names of arms.
    """
    models = listed(text, "run_published") if text.strip() else []
    names = [published_name(model) for model in models]
    for model, name in zip(models, names, strict=True):
        if not re.fullmatch(r"[\w.-]+", name) or name.endswith(tuple(f"-{arm}" for arm in ARMS)):
            expected = "letters, digits, '.', '_' and '-', and no arm such as -bm25 at the end; rename the folder"
            raise InputError(f"run_published: the last part of '{model}' names its arm; expected {expected}")
        if names.count(name) > 1:
            raise InputError(f"run_published: two models are called '{name}'; rename the folder of one")
    return models


def check_models(arms: Arms) -> None:
    """Raise InputError for a published model that is not there or has no weights. Only small files are downloaded."""
    for model in arms.models:
        with model_folder(model, of_tokenizers=True) as folder:
            if not folder.is_dir():
                raise InputError(f"run_published: {model} is a file; give the folder of a published model")
            if arms.further:
                _check_encoder(model, folder / "config.json")
        weights = WEIGHTS[0] if arms.further else "*.safetensors"  # of embeddings, also in folders within
        if not fnmatch.filter(names_of(model), weights):
            raise InputError(f"run_published: {model} has no weights ({weights}); {CONVERT}")


def _check_encoder(model: str, file: Path) -> None:
    """Raise InputError if config.json shows, without the library, that a model is none to fine-tune."""
    config = json_or_none(file)
    if not isinstance(config, dict) or "model_type" not in config:
        raise InputError(f"run_published: {model} has no config.json with a model_type; {EXPECTED}")
    if any(GENERATOR.search(str(name)) for name in config.get("architectures") or ()):
        kind = config["model_type"]
        raise InputError(f"run_published: {model} is a '{kind}' that generates text; take an encoder such as BERT")


def listed(text: str, name: str) -> list[str]:
    """Return what is written as 'one,two'. Raises InputError if there is nothing, or something twice."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items or len(set(items)) < len(items):
        raise InputError(f"{name}: '{text}' is empty or names one twice; give them separated by commas")
    return items


AUTO = "auto"  # an override that stands for the paper's advice on the task


class PlannedRun(NamedTuple):
    """One training run. `str` writes it as a URL query, to be passed between the steps of a pipeline.

    Attributes:
        arm: Its name in reports: one of `ARMS`, that of a published model, or `TOGETHER`.
        seed: Random seed.
        task: URI of the task; for stage 1 of several tasks together, one URI on each line.
        tokenizer: URI of the tokenizer; "" for that of the model that it starts from.
        subset: URI of the subset; "" for the task-only arm.
        preset: Named settings.
        overrides: Settings that replace those of the preset, separated by spaces.
        stages: 12 for both stages; 1 for stage 1 alone, whose model is evaluated; 2 to fine-tune `start`; "" to train
            nothing, but fit a linear model of the embeddings of `model`.
        start: URI of the checkpoint that the first of these stages starts from; "" for fresh weights.
        model: Place of a published model, which becomes `start` when the run is `loaded`; "" for none.
    """

    arm: str
    seed: int
    task: str
    tokenizer: str
    subset: str
    preset: str
    overrides: str
    stages: str = "12"
    start: str = ""
    model: str = ""

    def __str__(self) -> str:
        return urlencode(self._asdict())

    @classmethod
    def parse(cls, text: str) -> "PlannedRun":
        """Return the run that `str` wrote as `text`."""
        values = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True))
        return cls(**{**values, "seed": int(values["seed"])})  # type: ignore[arg-type]

    def tasks(self) -> list[str]:
        """Return the URIs of all tasks of the run."""
        return self.task.split("\n")

    def inputs(self) -> dict[str, Any]:
        """Return the arguments of stage 1, besides the task and the settings."""
        begin = {"start": self.start} if self.start else {}
        return {"tokenizer": self.tokenizer, "subset": self.subset, "seed": self.seed, **begin}

    def settings(self) -> dict[str, Any]:
        """Return preset and overrides as arguments of either stage."""
        return {"preset": self.preset, "overrides": self.overrides.split()}

    def on(self, gpus: str) -> dict[str, Any]:
        """Return `settings`, and where to train, in a pod with so many GPUs."""
        return {**self.settings(), "compute": Compute(gpus=int(gpus))}

    def loaded(self, root: str | None) -> "PlannedRun":
        """Load the published model that the run trains, if there is one, and start from its checkpoint."""
        if not self.model or not self.stages:
            return self
        start = load_model(self.model, self.task, arm=arm_of(self.model), **self.settings(), root=root)
        return self._replace(start=start)

    def scored(self, model: str, gpus: str, root: str | None) -> str:
        """Return the URI of the metrics of the model that was trained, or of embeddings where nothing is trained."""
        if not self.stages:
            return baseline(self.task, features=self.model, root=root)
        return evaluate(model, self.task, device="auto" if int(gpus) else "cpu", root=root)


def on_pods(runs: Sequence[str], gpus: str) -> list[dict[str, str]]:
    """Return runs (as strings) as items of a pipeline's loop: ``run``, and of a pod's `gpus`, how many each step uses.

    Both stages use as many as their batch fills, and evaluation one. Embeddings are computed on the CPU.
    """
    usable = {text: _usable_gpus(PlannedRun.parse(text)) for text in runs}
    return [{"run": text, **{step: str(min(int(gpus), most)) for step, most in usable[text].items()}} for text in runs]


def _usable_gpus(run: PlannedRun) -> dict[str, int]:
    """How many GPUs each step of a run can use, 0 where nothing is trained."""
    if not run.stages:
        return {"train": 0, "finetune": 0, "evaluate": 0}
    preset = presets.resolve(**run.settings())
    batch = preset.train.external_batch if run.subset else preset.train.internal_batch
    stage1 = filled(batch) if "1" in run.stages else 0
    stage2 = filled(preset.finetune.batch) if "2" in run.stages else 0
    return {"train": stage1, "finetune": stage2, "evaluate": 1}


def settings(
    preset: str,
    overrides: Sequence[str] = (),
    arms: str = "bm25",
    seeds: str = "0",
    gpus: str = "0",
    published: str = "",
    published_preset: str = "",
    network: bool = True,
) -> tuple[str, int, str, str]:
    """Check the settings of a run and its published models, before any work.

    Returns:
        What the component `preflight` gives to the steps before training: `tokenizer.kind` and `tokenizer.vocab_size`;
        the arms whose text is selected, separated by commas; and of the `gpus` of a training pod, the one that other
        work with a model takes, as a string.

    Raises:
        InputError: as of `check_settings`, or a published model is not there.
    """
    parsed, resolved = check_settings(preset, overrides, arms, seeds, published, published_preset, network)
    networks = (len(parsed.scratch) + len(parsed.further) * len(parsed.models)) * len(parse_seeds(seeds))
    embeddings = len(parsed.models) if parsed.embeddings else 0
    trained = f"models to train: {networks + embeddings}" if network else "no neural network"
    top_k = AUTO if AUTO in overrides else resolved.retrieve.top_k
    say(f"settings: preset {preset}, K={top_k}, {trained} (arms {arms}, seeds {seeds})")
    check_models(parsed)
    return resolved.tokenizer.kind, resolved.tokenizer.vocab_size, ",".join(parsed.texts), str(min(int(gpus), 1))


def check_settings(
    preset: str, overrides: Sequence[str], arms: str, seeds: str, published: str, published_preset: str, network: bool
) -> tuple[Arms, Preset]:
    """Resolve the presets with their overrides, and parse arms and seeds. Published models are not looked at.

    Raises:
        InputError: an unknown preset, setting or arm, a seed that is no number, or an arm or seed given twice.
    """
    parsed, given = parse_arms(arms, published, network=network), [one for one in overrides if one != AUTO]
    resolved = presets.resolve(preset, given)
    SIZES[resolved.tokenizer.kind].check("tokenizer.vocab_size", resolved.tokenizer.vocab_size)
    for of_published in [preset_of(text, published_preset) for text in parsed.further]:
        presets.resolve(of_published, _kept(given, of_published))  # their settings are checked here, too
    parse_seeds(seeds)
    return parsed, resolved


def _kept(overrides: Sequence[str], preset: str) -> list[str]:
    """The overrides that hold for published models; where texts are shorter than passages, with positions for these."""
    kept = [override for override in overrides if override.startswith(KEPT)]
    length = dict(override.split("=", 1) for override in kept).get("model.max_length", "")
    of_passages = presets.resolve(preset).train.external_length
    if length.isdecimal() and int(length) < of_passages:
        kept.append(f"model.positions={of_passages}")
    return kept


def advised(task: str, preset: str, overrides: Sequence[str] = (), corpus: str = "") -> tuple[int, str, str, str, str]:
    """Replace ``auto`` among the overrides by the paper's advice on the task; the other overrides take precedence.

    Args:
        task: URI of the task.
        preset: Named settings.
        overrides: Settings to change, and perhaps ``auto``.
        corpus: URI of the corpus or its index; "": its size is not considered.

    Returns:
        The settings that depend on the task, as the component `advise` names them: `retrieve.top_k`, `retrieve.query`,
        `retrieve.share`, all overrides separated by spaces, and the reasons for the advice, one sentence on each line.
    """
    given, reasons = [override for override in overrides if override != AUTO], ""
    if AUTO in overrides:
        start = [one for one in given if not one.startswith("retrieve.")]  # the paper's K is scaled by the preset's
        advice = advice_for(task, presets.resolve(preset, start), corpus)
        held = f" Settings given for the run take precedence: {' '.join(given)}." if given else ""
        reasons = "\n".join([f"Settings by the paper's rules: {' '.join(advice.overrides)}.{held}", *advice.reasons])
        given = [*advice.overrides, *given]
    retrieve = presets.resolve(preset, given).retrieve
    if reasons:
        say(reasons)
    return retrieve.top_k, retrieve.query, retrieve.share, " ".join(given), reasons


NOTHING_RETRIEVED = "Nothing was retrieved: no passage has a word of the queries, or none passed the filters."


def exported(hits: str, filters: Filters, root: str | None = None, *, required: bool = True) -> tuple[str, str]:
    """Export hits. Returns the URI of the subset, or else, unless a subset is required, why there is none."""
    try:
        return export(hits, filters=filters, root=root), ""
    except NothingLeft as error:
        if required:
            raise
        say(f"warning: {error}")
        return "", NOTHING_RETRIEVED


def arms_of(names: str, seeds: str, task: str, like: str) -> list[str]:
    """Return a `Selection` as a string for each name, and for each seed of one that draws (both comma-separated).

    `task` and `like` are those of `Selection`; without `like`, there is no text but the task's own.
    """
    if not like:
        return [str(Selection(TASK_ONLY, task, ""))]
    index = Artifact.open(like, "subset").input("hits").input("index")
    passages, vectors = index.input("corpus").details["passages"], bool(index.details.get("vectors"))
    selections = []
    for name in parse_arms(names).scratch:
        drawn = parse_seeds(seeds) if draws(name, passages, vectors=vectors) else [0]
        selections += [str(Selection(name, task, like, seed)) for seed in drawn]
    return selections


def plan(
    arms: str,
    seeds: str,
    *,
    task: str,
    tokenizer: str,
    subsets: Sequence[str],
    preset: str,
    overrides: str,
    published: str = "",
    published_preset: str = "",
) -> list[str]:
    """Return a `PlannedRun` as a string for each arm and seed (both comma-separated) and for each model's embeddings.

    Args:
        arms: The arms.
        seeds: The seeds.
        task: URI of the task.
        tokenizer: URI of the tokenizer of the networks from scratch.
        subsets: URIs of the arms' subsets, in any order; "" for task-only. A run with an arm that draws has the subset
            that was drawn by its seed.
        preset: Named settings of the networks from scratch.
        overrides: Settings to change, separated by spaces; those about texts hold for published models, too.
        published: Places of published models, separated by commas.
        published_preset: Named settings of those, instead of their own.
    """
    parsed, opened = parse_arms(arms, published), [Artifact.open(uri, "subset") for uri in subsets if uri]
    subset_of = {(subset.details["arm"], seed_of(subset)): subset.uri for subset in opened}
    subset_of |= {(text, 0): "" for text in (TASK_ONLY, "")}
    runs = []
    for seed in parse_seeds(seeds):
        drawn = {text: subset_of.get((text, seed)) or subset_of[text, 0] for text in [*parsed.scratch, *parsed.further]}
        runs += [PlannedRun(arm, seed, task, tokenizer, drawn[arm], preset, overrides) for arm in parsed.scratch]
        for model, text in product(parsed.models, parsed.further):
            arm, of_published = arm_of(model, text), preset_of(text, published_preset)
            kept, stages = " ".join(_kept(overrides.split(), of_published)), "12" if text else "2"
            runs.append(PlannedRun(arm, seed, task, "", drawn[text], of_published, kept, stages, model=model))
    for model in parsed.models if parsed.embeddings else ():
        arm = arm_of(model, None)
        runs.append(PlannedRun(arm, 0, task, tokenizer="", subset="", preset="", overrides="", stages="", model=model))
    return [str(run) for run in runs]


def tokenize_runs(runs: Sequence[str], root: str | None) -> None:
    """Tokenize the texts of all runs (as strings) ahead of them, each once for each tokenizer.

    A published model without a tokenizer.json is left to its first run, as reading older files takes its library.
    """
    by_tokenizer: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in map(PlannedRun.parse, runs):
        if run.stages:
            by_tokenizer.setdefault((run.tokenizer, run.model), []).append(run)
    for (tokenizer, model), alike in by_tokenizer.items():
        if model:
            with model_folder(model, of_tokenizers=True) as folder:
                if not (folder / "tokenizer.json").exists():
                    continue
                tokenizer = adopt_tokenizer(folder, root)
        texts = list(dict.fromkeys(uri for run in alike for uri in (run.task, run.subset) if uri))
        tokenize_all(texts, tokenizer, **alike[0].settings(), root=root)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds written as '0,1,2'. Raises InputError for one that torch cannot take or that is given twice."""
    seeds = listed(text, "seeds")
    for seed in seeds:
        if not re.fullmatch("0|[1-9][0-9]{0,17}", seed):
            raise InputError(f"seeds: '{seed}' is no whole number of at most 18 digits; give them as '0,1,2'")
    return [int(seed) for seed in seeds]
