"""The paper's settings, made from ``table_b1.toml``: Table B.1, the sizes of the models, and their sources."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from tlm.presets.scales import Values

PLAIN = "scierc"  # the task whose column the presets `small`, `medium` and `large` are


class Published(NamedTuple):
    """What the paper says about a preset besides its settings.

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
    return tomllib.loads(files("tlm.presets").joinpath("table_b1.toml").read_text(encoding="utf-8"))


@lru_cache(1)
def task_names() -> dict[str, str]:
    """Return our name of each of the eight tasks by every name in use: ``sciie`` is ``scierc``."""
    return {name: task for task, facts in table_b1()["tasks"].items() for name in (task, *facts["also"])}


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


def published(preset: str) -> Published | None:
    """Return what the paper says about one of its presets; None for other presets."""
    if preset not in paper_presets():
        return None
    name, _, task = preset.partition("-")
    scale = table_b1()["scales"][name]
    shape = table_b1()["shapes"][scale["shape"]]
    size = None if task == "glue" else _column(name, task or PLAIN)["subset_gb"]
    return Published(scale["corpus"], size, shape["parameters"], shape["printed"])


def _column(scale: str, task: str) -> dict[str, Any]:
    """Return the values of Table B.1 for one task."""
    place = list(table_b1()["tasks"]).index(task)
    rows = table_b1()["scales"][scale]
    return {name: value[place] if isinstance(value, list) else value for name, value in rows.items()}


def _preset(scale: str, column: dict[str, Any], origin: str) -> Values:
    shape, common = table_b1()["shapes"][table_b1()["scales"][scale]["shape"]], table_b1()["common"]
    train = {name: column[name] for name in ("rho1", "steps", "external_length")}
    train |= {"rho2": float(column["rho2"]), "external_batch": column["batch"], "internal_batch": column["batch"]}
    return {
        "retrieve": {**common["retrieve"], "top_k": column["top_k"]},
        "tokenizer": shape["tokenizer"],
        "model": {**common["model"], **shape["model"], "max_length": column["internal_length"]},
        "train": {**common["train"], **train, "accumulation": column["accumulation"]},
        "finetune": common["finetune"],
        "source": {
            **common["source"],
            "retrieve": origin,
            "tokenizer": f"size of {shape['source']}'s; trained here, where the paper took the published vocabulary",
            "model": shape["source"],
            "model.max_length": origin,
            **{f"train.{name}": origin for name in train},
        },
    }
