"""Presets of all settings, from seconds on a laptop to the paper's Table B.1, and what stage 1 costs with them."""

import tomllib
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from pydantic import ValidationError

from tlm.errors import InputError, nearest
from tlm.settings.sections import SECTIONS, Preset

Values = dict[str, dict[str, Any]]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files("tlm.settings").joinpath(name).read_text(encoding="utf-8"))


_SCALES = _read("scales.toml")


def _values(name: str) -> Values:
    """The values of a scale: its own, and those of its base."""
    own = _SCALES[name]
    base: Values = _values(own["base"]) if "base" in own else {}
    values = {section: {**base.get(section, {}), **own.get(section, {})} for section in SECTIONS}
    source = dict.fromkeys(SECTIONS, own["source"]) if "source" in own else base["source"]
    return {**values, "source": source}


SCALES = {name: _values(name) for name in _SCALES}
PLAIN = "scierc"  # the task whose column the presets `small`, `medium` and `large` are


class PaperModel(NamedTuple):
    """The facts that the paper gives about a preset besides its settings.

    Attributes:
        corpus: Name of the corpus.
        subset_gb: Size of what was retrieved, in GB; None if the paper does not say.
        parameters: Parameters of the model, without the classification head.
        printed_parameters: Parameters that the paper prints, and counts FLOPs with.
    """

    corpus: str
    subset_gb: float | None
    parameters: int
    printed_parameters: float


@lru_cache(1)
def table_b1() -> dict[str, Any]:
    """Return the contents of ``table_b1.toml``."""
    return _read("table_b1.toml")


@lru_cache(1)
def paper_presets() -> dict[str, Values]:
    """Return the settings by preset: ``small``, ``small-agnews``, …, ``large-rct``, ``small-glue``."""
    table = table_b1()
    made: dict[str, Values] = {}
    for scale in table["scales"]:
        for name, task in {scale: PLAIN, **{f"{scale}-{task}": task for task in table["tasks"]}}.items():
            origin = f"{table['source']}: {scale} scale, {table['tasks'][task]['title']}"
            made[name] = _preset(scale, _column(scale, task), origin)
    made["small-glue"] = _preset(table["glue"]["scale"], table["glue"], table["glue"]["source"])
    return made


def published(preset: str) -> PaperModel | None:
    """Return the paper's facts about one of its presets; None for other presets."""
    if preset not in paper_presets():
        return None
    name, _, task = preset.partition("-")
    scale = table_b1()["scales"][name]
    shape = table_b1()["shapes"][scale["shape"]]
    size = None if task == "glue" else _column(name, task or PLAIN)["subset_gb"]
    return PaperModel(scale["corpus"], size, shape["parameters"], shape["printed"])


def _column(scale: str, task: str) -> dict[str, Any]:
    """Return the values of Table B.1 for one task."""
    place = list(table_b1()["tasks"]).index(task)
    rows = table_b1()["scales"][scale]
    return {name: value[place] if isinstance(value, list) else value for name, value in rows.items()}


def _preset(scale: str, column: dict[str, Any], origin: str) -> Values:
    shape, common = table_b1()["shapes"][table_b1()["scales"][scale]["shape"]], table_b1()["common"]
    train = {name: column[name] for name in ("rho1", "steps", "external_length")}
    train |= {"rho2": float(column["rho2"]), "external_batch": column["batch"], "internal_batch": column["batch"]}
    own = f"size of {shape['source']}'s; trained here, where the paper took the published vocabulary"
    source = {**common["source"], "retrieve": origin, "tokenizer": own, "model": shape["source"]}
    source["model.max_length"] = origin
    return {
        "retrieve": {**common["retrieve"], "top_k": column["top_k"]},
        "tokenizer": shape["tokenizer"],
        "model": {**common["model"], **shape["model"], "max_length": column["internal_length"]},
        "train": {**common["train"], **train, "accumulation": column["accumulation"]},
        "finetune": common["finetune"],
        "source": source | {f"train.{name}": origin for name in train},
    }


OVERRIDDEN = "set for this run"


def names() -> list[str]:
    """Return the names of the presets: smallest first, then those of the paper."""
    return [*SCALES, *paper_presets()]


def resolve(preset: str, overrides: Sequence[str] = ()) -> Preset:
    """Return the settings of `preset` after the overrides, all checked.

    Args:
        preset: One of `names`.
        overrides: Such as ``train.rho1=4`` or ``train.betas=0.9,0.98``; if a setting is given twice, the last counts.

    Raises:
        InputError: an unknown preset or setting (with a hint), or a value out of range.
    """
    known = SCALES if preset in SCALES else paper_presets()
    if preset not in known:
        raise InputError(f"preset '{preset}' is unknown{nearest(preset, names())}")
    values = {section: dict(given) for section, given in known[preset].items()}
    for override in overrides:
        setting, text = _parse(override)
        section, _, name = setting.partition(".")
        values[section][name] = text.split(",") if name == "betas" else text
        values["source"][setting] = OVERRIDDEN
    try:
        return Preset.model_validate({"name": preset, **values})
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


def named(preset: str, overrides: Sequence[str] = ()) -> dict[str, str]:
    """Return how the settings were named, for run.json; they may have other names in another run."""
    return {"preset": preset, "overrides": " ".join(overrides)}


def _parse(override: str) -> tuple[str, str]:
    setting, _, text = map(str.strip, override.partition("="))
    known = [f"{section}.{name}" for section, fields in SECTIONS.items() for name in fields.model_fields]
    if not text:
        raise InputError(f"setting '{override}' has no value; expected section.name=value, such as train.rho1=4")
    if setting not in known:
        inside = [name for name in known if name.endswith(f".{setting}")]
        raise InputError(f"setting '{setting}' is unknown{nearest(inside[0] if inside else setting, known)}")
    return setting, text


_EXPECTED = dict.fromkeys(("missing", "too_long"), "two numbers, such as 0.9,0.98")  # by pydantic's type of error


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    setting = ".".join(str(part) for part in first["loc"][:2])
    alike = [other for other in error.errors() if other["loc"][:2] == first["loc"][:2]]
    texts = [other["msg"].replace("Input should be ", "").partition(", unable")[0] for other in alike]
    reasons = {_EXPECTED.get(other["type"], text) for other, text in zip(alike, texts, strict=True)}
    given = ",".join(first["input"]) if isinstance(first["input"], list) else first["input"]
    return f"setting {setting}={given} cannot be: expected {' or '.join(sorted(reasons))}"


class Stage1(NamedTuple):
    """The size of stage 1.

    Attributes:
        external_batches: Batches of external data.
        internal_batches: Batches of internal data.
        padded_tokens: Tokens of all batches, where each text counts with its maximum length.
    """

    external_batches: int
    internal_batches: int
    padded_tokens: int


def stage1_cost(preset: Preset) -> Stage1:
    """Return the size of stage 1 with external data; internal texts count as `model.max_length` tokens."""
    train = preset.train
    internal = 0 if train.rho1 == "inf" else train.steps // (train.rho1 + 1)
    external = train.steps - internal
    tokens = external * train.external_batch * train.external_length
    return Stage1(external, internal, tokens + internal * train.internal_batch * preset.model.max_length)


def paper_flops(parameters: float, padded_tokens: int) -> float:
    """The paper's estimate (section 4.1, Table 2): 6 · parameters · tokens, with padding to the full length."""
    return 6 * parameters * padded_tokens
