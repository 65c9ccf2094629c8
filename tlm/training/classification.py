"""Fine-tuning by the classification loss alone, of all weights or a part; what is best on dev is kept (section 3.3)."""

import re
import tomllib
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.special import expit, softmax
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe
from tlm.data.ranges import CUT, HEAD, HEAD_TAIL, by_length
from tlm.data.tasks.examples import SEVERAL
from tlm.data.tasks.metrics import THRESHOLDS, dev_score, fitted_thresholds
from tlm.errors import InputError, printable
from tlm.progress import say
from tlm.retrieval.subset.export import PUBLISHED, further_text
from tlm.settings.options import Compute
from tlm.settings.sections import Finetune, Model
from tlm.settings.selectors import SELECTORS
from tlm.shallow.folder import config_of
from tlm.shallow.temperature import fitted_temperature
from tlm.training.checkpoint import Best, Curve, Snapshots, State
from tlm.training.device import resolve_device, run_facts, to_device
from tlm.training.distributed.group import ProcessGroup
from tlm.training.input import batches
from tlm.training.input.batches import Batch, FlopCount, Masking, Stream, collate, generator, number
from tlm.training.input.texts import Examples, Texts
from tlm.training.input.tokenize import tokens_for
from tlm.training.loop import Plan, fit
from tlm.training.model import build
from tlm.training.model.encoder import Body, Encoder, Inputs, tf32
from tlm.training.model.losses import Losses, classification_loss

MASK_DRAWS = 8  # masks for each text: enough for their mean to differ little between seeds
MASK_SHARE = 0.15
RESET = "finetune.reset_head=true"
RANK = 8
# Operations of a step that trains a part of the weights, roughly, in ninths of those of a step that trains all.
NINTHS = {"all": 9, "lora": 7, "bias": 6, "head": 3}


@torch.no_grad()
@tf32()
def class_logits(model: Encoder, texts: Texts, rows: NDArray[np.int64], device: torch.device) -> NDArray[np.float32]:
    """Logits of the texts `rows`, [n, labels], in that order. `model` keeps its mode (train or eval)."""
    training = model.training
    model.eval()
    logits = np.zeros((len(rows), len(model.body.config["id2label"])), dtype=np.float32)
    for indices in by_length(texts.lengths[rows]):
        inputs = to_device(collate(texts, rows[indices]), device)
        _, of_batch = model(inputs, inputs.ids, tokens=False, classes=True)
        logits[indices] = of_batch.float().cpu().numpy()
    model.train(training)
    return logits


@torch.no_grad()
@tf32()
def masked_lm_loss(
    checkpoint: Artifact, task: Artifact, split: str, device: str, root: str | None = None
) -> float | None:
    """Mean cross entropy, in nats, of masked tokens in the texts of a split; None for a model without an MLM head.

    The masks (15 %, 80/10/10) are the same for all models with the same vocabulary, so that arms and seeds compare.
    The tokens of the texts are found or made by `tokenize` with this `root`.

    Raises:
        InputError: the texts have no words in them, or the device is not there.
    """
    torch_device = torch.device(resolve_device(device))
    if not checkpoint.entries(build.MLM_HEAD):
        return None
    tokens = tokens_for(checkpoint, task, root)
    model = build.load(checkpoint.path("model"), checkpoint.path(build.MLM_HEAD)).to(torch_device).eval()
    config = model.body.config
    examples = Examples.open(task, tokens, build.text_length(config), config.get(CUT, HEAD))
    texts, rows = examples.texts, examples.rows(split)
    masking = Masking(MASK_SHARE, config["vocab_size"], texts.special)
    total, count = 0.0, 0
    for draw in range(MASK_DRAWS):
        for place, indices in enumerate(by_length(texts.lengths[rows])):
            batch = masking(collate(texts, rows[indices]), generator(0, batches.HELD_OUT, draw, place))
            inputs = to_device(batch, torch_device)
            logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
            total += float(F.cross_entropy(logits.float(), inputs.targets, reduction="sum"))
            count += batch.of_masked
    if count == 0:
        raise InputError(f"the {split} texts of {task.uri} have no token to predict; expected texts with words")
    return total / count


def fine_tune(draft: Draft, recipe: Recipe, settings: Finetune, compute: Compute, root: str | None) -> None:
    """Fine-tune and write a `model`. Of several processes, the first one writes it.

    Args:
        draft: Where to write.
        recipe: What is trained: arm and seed, and the artifacts ``checkpoint``, ``task`` and ``task_tokens``.
        settings: The settings of stage 2.
        compute: Where to train, and how often to save the state.
        root: The store, as the step was given it.
    """
    with ProcessGroup.current().in_turn():
        work = Classification(*begin(recipe, settings))
    work.label = f"stage 2, {recipe.settings['arm']}, seed {recipe.settings['seed']}"
    carry_out(work, draft, recipe, compute, root)


def begin(recipe: Recipe, settings: Finetune) -> tuple[Encoder, Examples, Model, Finetune, str, int]:
    """What `Classification` takes, in its order; the model is the one that training begins with."""
    checkpoint, task = recipe.inputs["checkpoint"], recipe.inputs["task"]
    shape = Model.model_validate(checkpoint.manifest.settings["model"])
    examples = Examples.open(task, recipe.inputs["task_tokens"], shape.max_length, shape.cut)
    seed = recipe.settings["seed"]
    model = _begun(checkpoint, examples, task.details["name"], settings, seed)
    train_only(model.body, settings.weights, seed)
    return model, examples, shape, settings, task.details["metric"], seed


def carry_out(
    work: "Classification", draft: Draft, recipe: Recipe, compute: Compute, root: str | None, **about: object
) -> None:
    """Train to the end and write the weights that are best on dev. Of several processes, the first one writes.

    Args:
        work: The work, whose model is not on the device yet.
        draft: Where to write.
        recipe: What is trained, as `fine_tune` takes it.
        compute: Where to train, and how often to save the state.
        root: The store, as the step was given it.
        about: More for the model card.
    """
    torch_device, settings = torch.device(resolve_device(compute.place)), work.settings
    facts = {name: recipe.settings[name] for name in ("arm", "seed")}
    work.model.to(torch_device)
    plan = Plan(settings, work.steps, round(settings.warmup_share * work.steps), settings.dropout, facts["seed"])
    state = State.fresh(work.model.body, settings, plan.steps)
    fit(state, work, plan, Snapshots(recipe, root, compute, draft.spending), torch_device)
    if not ProcessGroup.current().first:
        return
    assert state.best is not None
    loaded = work.model.body.load_state_dict(state.best.weights, strict=False)  # what was not trained is missing
    assert not loaded.unexpected_keys
    merge(work.model.body)
    build.to_units(work.model, work.examples.scale)
    chosen = _fit_probabilities(work)
    build.save(work.model, draft.folder / "model", recipe.inputs["task_tokens"].input("tokenizer").path("tokenizer"))
    state.curve.write(draft, work.columns(state.curve, plan))
    facts["parameters"] = parameters = build.parameter_count(work.model)
    cost = {"steps": plan.steps, **state.curve.cost(parameters)}
    draft.details = {**facts, **chosen, "best_step": state.best.step, "best_dev": state.best.score, "cost": cost}
    draft.counts = {**cost, "best_step": state.best.step}
    draft.run |= run_facts(torch_device, settings.precision)
    stage1 = recipe.inputs["checkpoint"].details["cost"]
    text = _model_card(work, recipe.inputs["task"].details, {**draft.details, "stage1": stage1, **about})
    (draft.folder / "model" / "README.md").write_text(text, encoding="utf-8")


def _fit_probabilities(work: "Classification") -> dict[str, Any]:
    """Fit thresholds of several labels, or a temperature of classes, to dev; the latter is returned for `details`."""
    if work.examples.scale:
        return {}
    logits, gold = work.dev_logits().astype(np.float64), work.examples.labels[work.dev_rows]
    if work.examples.several:
        work.model.body.config[THRESHOLDS] = fitted_thresholds(expit(logits), gold).tolist()
        return {}
    temperature = fitted_temperature(softmax(logits, axis=1), gold)
    build.rescale(work.model, 1 / temperature)
    return {"chosen": {"temperature": temperature}}


_MARKUP = re.compile(r"([\\`\[\]<>&!])")  # in names from outside, what begins links, images and HTML


def _model_card(work: "Classification", task: dict[str, Any], facts: dict[str, Any]) -> str:
    """Return the text of README.md.

    Args:
        work: The work that is done.
        task: Details of the task artifact.
        facts: Those of the model artifact; stage1, the cost of that stage; of a student, teacher and taught_passages.
    """
    texts = tomllib.loads(files("tlm.training.model").joinpath("card.toml").read_text(encoding="utf-8"))
    marks = [list(pair) for pair in work.examples.marks]
    start = "published" if facts["arm"].startswith(PUBLISHED) else "scratch"
    before = " after it was trained on with more text (stage 1)" if facts["stage1"]["steps"] else ""
    filled = {
        "name": _MARKUP.sub(r"\\\1", printable(task["name"])),
        "sure": texts["sure"].format(**facts["chosen"]) if "chosen" in facts else "",
        "knows": texts["knows"][start],
        "origin": texts["origin"][start].format(before=before, shape=work.shape, **facts),
        "ends": texts["ends"] if work.shape.cut == HEAD_TAIL else "",
        "preparation": texts["preparation"].format(marks=marks) if marks else "",
        "several": texts["several"] if task["problem"] == SEVERAL else "",
        "kind": "regressor" if task["problem"] == "regression" else "classifier",
        "output": _output(task),
        "example": '{"text": "…", "text_pair": "…"}' if task["pair"] else '"…"',
        "passages": _passages(facts["arm"], texts["passages"]),
        "trained": texts["trained"][work.settings.weights],
        "taught": texts["taught"].format(**facts) if "teacher" in facts else "",
    }
    counts = {"train": len(work.stream.rows), "evaluations": len(work.evaluated)}
    return str(texts["card"].format(**{**task, **facts, **counts, **filled, "shape": work.shape}))


def _output(task: dict[str, Any]) -> str:
    """What a model of a task gives."""
    if task["problem"] == "regression":
        return "the output is a number"
    kind = "labels, several or none a text" if task["problem"] == SEVERAL else "classes"
    return f"{len(task['labels'])} {kind}: {', '.join(map(_code, task['labels']))}"


def _code(label: str) -> str:
    """A label as a Markdown code span."""
    return f"`{printable(label).replace('`', chr(39))}`"


def _passages(arm: str, others: dict[str, str]) -> str:
    """What is said of the passages of an arm; `others` are those whose text no selector chose.

    The arms of published models have their names in them.
    """
    known = others | {name: selector.card for name, selector in SELECTORS.items()}
    if not arm.startswith(PUBLISHED):
        return known.get(arm, arm)
    text = further_text(arm)
    alike = f"{PUBLISHED}-{text}".rstrip("-")
    return known.get(alike, f"those of the published model and, in stage 1, passages {known.get(text, text)}")


def _begun(checkpoint: Artifact, examples: Examples, name: str, settings: Finetune, seed: int) -> Encoder:
    """The checkpoint's encoder, with a fresh head for this task or with its own head for it."""
    folder = checkpoint.path("model")
    before = build.with_dropout(config_of(folder), settings.dropout)
    config = build.with_task(before, examples.classes, name, examples.marks, several=examples.several)
    model = build.build(build.for_older(config), seed)
    if settings.reset_head:
        build.load_encoder(model, folder)
        return model
    if "tasks" in checkpoint.details:  # it was trained on several tasks, and has a head for each
        heads = [(task["name"], task["labels"]) for task in checkpoint.details["tasks"]]
        wanted = (name, examples.classes)
        if wanted not in heads:
            raise InputError(f"{checkpoint.uri} has no head for '{name}' with these classes; set {RESET}")
        build.load_encoder(model, folder)
        build.load_head(model, checkpoint.path(build.HEADS), heads.index(wanted))
    else:
        if any(config[key] != before[key] for key in ("id2label", "problem_type")):
            raise InputError(f"{checkpoint.uri} was trained for other classes than this task's; set {RESET}")
        build.load_weights(model, folder)
    build.to_standardised(model, examples.scale)
    return model


class Classification:
    """The work of stage 2: batches of training examples, and a few evaluations on dev."""

    advice = "lower finetune.batch, or compute it in parts (finetune.accumulation=2, 4, …)"

    def __init__(
        self, model: Encoder, examples: Examples, shape: Model, settings: Finetune, metric: str, seed: int
    ) -> None:
        self.label, self.model, self.examples, self.metric = "stage 2", model, examples, metric
        self.shape, self.settings = shape, settings
        self.stream = Stream(examples.texts, examples.rows("train"), settings.batch, seed, batches.STAGE2)
        self.dev_rows = examples.rows("dev")
        self.steps = settings.steps or max(1, round(settings.epochs * self.stream.per_epoch))
        self.cost = FlopCount(shape, model.body.config["vocab_size"], len(model.body.config["id2label"]))

    @property
    def evaluated(self) -> set[int]:
        """The steps after which dev is scored."""
        count = self.settings.evaluations
        return {-(-self.steps * k // count) for k in range(1, count + 1)}

    def batch(self, step: int) -> Batch:
        """The batch of `step`."""
        return self.stream.batch(step, self.examples.labels)

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of that batch."""
        return classification_loss(self.model, inputs)

    def costs(self, step: int, batch: Batch) -> tuple[int, int, int]:
        """Tokens, padded tokens as the paper counts them, and FLOPs of `step`."""
        flops = self.cost.of(batch, tokens=False, classes=True) * NINTHS[self.settings.weights] // NINTHS["all"]
        return batch.tokens, batch.padded, flops

    def after(self, state: State) -> None:
        """Score dev at the steps planned for it, and keep the weights if they are the best so far."""
        if state.step not in self.evaluated:
            return
        logits = self.dev_logits()
        if not np.isfinite(logits).all():
            raise InputError(f"training diverged before step {state.step}; lower finetune.lr")
        score = dev_score(self.metric, self.examples.labels[self.dev_rows], logits)
        state.curve.dev[state.step - 1] = score
        if state.best is None or score > state.best.score:
            weights = {name: weight.detach().clone() for name, weight in _trained(self.model.body).items()}
            state.best = Best(state.step, score, weights)

    def dev_logits(self) -> NDArray[np.float32]:
        """Logits of the dev examples, [n, labels]."""
        return class_logits(self.model, self.examples.texts, self.dev_rows, next(self.model.parameters()).device)

    def columns(self, curve: Curve, plan: Plan) -> dict[str, pa.Array]:
        """The columns of curve.parquet, a row for each step; `dev` is null where it was not scored."""
        columns = plan.columns(curve, {"ce": pa.array(curve.losses[:, 2].cpu().numpy())})
        return {**columns, "dev": pa.array(curve.dev, mask=np.isnan(curve.dev))}


class LowRank(nn.Module):
    """The change of a matrix by a product of two thin ones, which is 0 at first (LoRA: Hu et al., ICLR 2022).

    It is `peft`'s with its defaults, but changes matrices, where `peft` changes what modules return: our ModernBERT
    reads the matrices themselves.
    """

    def __init__(self, matrix: Tensor, random: torch.Generator) -> None:
        super().__init__()
        rows, columns = matrix.shape
        self.down, self.up = nn.Parameter(torch.empty(RANK, columns)), nn.Parameter(torch.zeros(rows, RANK))
        nn.init.kaiming_uniform_(self.down, a=5**0.5, generator=random)

    def forward(self, matrix: Tensor) -> Tensor:
        """The changed matrix."""
        return matrix + self.up @ self.down


def train_only(body: Body, part: str, seed: int) -> None:
    """Freeze all weights but the head and `part`, a value of `Finetune.weights`; for LoRA, add what is trained.

    bias is BitFit (Ben Zaken et al., ACL 2022).

    Raises InputError if the encoder has no such weights.
    """
    if part == "all":
        return
    for name, weight in body.named_parameters():
        weight.requires_grad = name.startswith(body.head_names) or (part == "bias" and name.endswith("bias"))
    if part == "lora":
        random = torch.Generator().manual_seed(number(seed, batches.LOW_RANK))
        for module in _projections(body):
            parametrize.register_parametrization(module, "weight", LowRank(module.weight, random))
    trained = _trained(body)
    if part != "head" and all(name.startswith(body.head_names) for name in trained):
        kind = body.config["model_type"]
        raise InputError(f"finetune.weights is {part}, and this {kind} has nothing of that kind; set head or all")
    say(f"finetune.weights={part}: {sum(map(torch.numel, trained.values())):,} parameters are trained")


def _trained(body: Body) -> dict[str, nn.Parameter]:
    """The weights that are not frozen, by name."""
    return {name: weight for name, weight in body.named_parameters() if weight.requires_grad}


def _projections(body: Body) -> list[nn.Linear]:
    """The projections of attention: queries, keys, values and output, or the matrices that have several of them."""
    return [
        module
        for name, module in body.named_modules()
        if isinstance(module, nn.Linear)
        and ("attention." in name or "attn." in name)
        and not name.startswith(body.head_names)
    ]


def merge(body: Body) -> None:
    """Add LoRA's changes to the matrices, so that the model is as plain as before `train_only`."""
    for module in list(body.modules()):
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
