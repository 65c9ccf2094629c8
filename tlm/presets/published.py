"""The paper's settings, made from data: ``table_b1.toml`` holds Table B.1, the models' sizes, and their sources."""

import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from tlm.presets.scales import Values

PLAIN = "scierc"  # the column that `small`, `medium` and `large` without a task are


class Published(NamedTuple):
    """What the paper says beside the settings: about the data, and about the size that its FLOPs are counted with."""

    scale: str
    task: str
    corpus: str
    subset_gb: float | None
    parameters: int
    printed_parameters: float


@lru_cache(1)
def table_b1() -> dict[str, Any]:
    """The data file: tasks, scales, shapes, glue, and the sentences on their sources."""
    return tomllib.loads(files("tlm.presets").joinpath("table_b1.toml").read_text(encoding="utf-8"))


@lru_cache(1)
def task_names() -> dict[str, str]:
    """The eight tasks by every name in use, each with ours: ``sciie`` is ``scierc``."""
    return {name: task for task, facts in table_b1()["tasks"].items() for name in (task, *facts["also"])}


@lru_cache(1)
def paper_presets() -> dict[str, Values]:
    """Settings by name: ``small``, ``small-agnews``, …, ``large-rct``, ``small-glue``."""
    made: dict[str, Values] = {}
    for scale in table_b1()["scales"]:
        made[scale] = _preset(scale, _column(scale, PLAIN), _origin(scale, PLAIN))
        for task in table_b1()["tasks"]:
            made[f"{scale}-{task}"] = _preset(scale, _column(scale, task), _origin(scale, task))
    glue = table_b1()["glue"]
    made["small-glue"] = _preset(glue["scale"], glue, glue["source"])
    return made


def published(preset: str) -> Published | None:
    """What the paper says of one of its settings; None for a preset that is not the paper's."""
    if preset not in paper_presets():
        return None
    scale, _, task = preset.partition("-")
    table = table_b1()
    shape = table["shapes"][table["scales"][scale]["shape"]]
    size = None if task == "glue" else _column(scale, task or PLAIN)["subset_gb"]
    corpus = table["scales"][scale]["corpus"]
    return Published(scale, task or PLAIN, corpus, size, shape["parameters"], shape["printed"])


def _column(scale: str, task: str) -> dict[str, Any]:
    """The values of Table B.1 for one task."""
    place = list(table_b1()["tasks"]).index(task)
    rows = table_b1()["scales"][scale]
    return {name: value[place] if isinstance(value, list) else value for name, value in rows.items()}


def _origin(scale: str, task: str) -> str:
    return f"{table_b1()['source']}: {scale} scale, {table_b1()['tasks'][task]['title']}"


def _preset(scale: str, column: dict[str, Any], origin: str) -> Values:
    table = table_b1()
    shape = table["shapes"][table["scales"][scale]["shape"]]
    return {
        "retrieve": {"top_k": column["top_k"], "query": "auto"},
        "tokenizer": shape["tokenizer"],
        "model": {
            "architecture": "bert", **shape["model"], "max_length": column["internal_length"], "dropout": 0.1,
        },
        "train": {
            "rho1": column["rho1"], "rho2": float(column["rho2"]), "steps": column["steps"],
            "external_batch": column["batch"], "internal_batch": column["batch"],
            "external_length": column["external_length"],
            "lr": 1e-4, "warmup_steps": 10_000, "weight_decay": 0.01, "clip": 0, "precision": "bf16",
        },
        "finetune": {
            "steps": 30_000, "batch": 32, "lr": 2e-5, "warmup_share": 0.1, "weight_decay": 0, "evaluations": 30,
            "clip": 0, "precision": "bf16",
        },
        "source": _sources(origin, shape["source"]),
    }  # fmt: skip


def _sources(origin: str, shape: str) -> dict[str, str]:
    table = table_b1()
    of_table = ("rho1", "rho2", "steps", "external_batch", "internal_batch", "external_length")
    precision = "bf16 where the paper had fp16"
    return {
        "retrieve": origin,
        "retrieve.query": "paper, section 3.1: RAKE keywords where texts are long",
        "tokenizer": f"size of {shape}'s; trained here, where the paper took the published vocabulary",
        "model": shape,
        "model.max_length": origin,
        "train": table["stage1_source"],
        **{f"train.{name}": origin for name in of_table},
        "train.precision": precision,
        "finetune": table["stage2_source"],
        "finetune.precision": precision,
        **dict.fromkeys(("train.accumulation", "finetune.accumulation"), "ours; the result is the same"),
        "finetune.epochs": "not used: steps are given",
    }
