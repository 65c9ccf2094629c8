"""Changes of the recipe, each against the recipe as it is: the same seeds, scored on dev; test is not read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from research.studies import cpu_seconds, json_lines
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.examples import one_label_each, read_splits
from tlm.data.tasks.metrics import Split, score
from tlm.evaluation.score.intervals import Arm, Predictions, difference, interval
from tlm.training.stages import finetune, train

PLAIN = "as it is"


def levers(
    task: str,
    *,
    changes: Sequence[str],
    file: Path,
    tokenizer: str,
    subset: str = "",
    preset: str = "pocket",
    overrides: Sequence[str] = (),
    seeds: int = 3,
    root: str | None = None,
) -> None:
    """Train with and without each change, and print macro-F1 on dev and its difference, by change.

    What is finished is found in the store and in `file`. The model of stage 2 is the best of its course on this dev.

    Args:
        task: URI of the task.
        changes: A setting, which is a change of its own, such as train.mask_share=0.3; may be repeated.
        file: Results, a line of JSON a run, with its answers; lines are added.
        tokenizer: URI of the tokenizer.
        subset: URI of the subset.
        preset: Named settings.
        overrides: A setting that all runs share; may be repeated.
        seeds: How many seeds a change.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    given = Artifact.open(task, "task")
    one_label_each(given, "levers")
    recipe = {"task": given.content, "tokenizer": tokenizer, "subset": subset, "preset": preset, "set": list(overrides)}
    dev = read_splits(given, "dev")["dev"]
    common: dict[str, Any] = {"preset": preset, "root": root}
    wanted = (PLAIN, *changes)
    for seed in range(seeds):
        for change in wanted:
            about = {**recipe, "change": change, "seed": seed}
            if any(_has(row, about) for row in json_lines(file)):
                continue
            own = [*overrides, *([change] if change != PLAIN else [])]
            start = Artifact.open(train(task, tokenizer=tokenizer, subset=subset, overrides=own, seed=seed, **common))
            end = Artifact.open(finetune(start.uri, task, overrides=own, **common))
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps({**about, **_result(start, end, given, dev)}) + "\n")
    found = [row for row in json_lines(file) if _has(row, recipe)]
    _show([row for row in found if row["change"] in wanted and row["seed"] < seeds], dev)


def _has(row: dict[str, Any], about: dict[str, Any]) -> bool:
    return all(row.get(name) == value for name, value in about.items())


def _result(start: Artifact, end: Artifact, task: Artifact, dev: Split) -> dict[str, Any]:
    """The answers on dev, their macro-F1, the loss of masked tokens of dev, and what both stages cost."""
    from tlm.evaluation.predict.predictor import open_predictor
    from tlm.training.classification import masked_lm_loss

    found = open_predictor(end.path("model"), "cpu")[0].predict(dev.texts, dev.pairs).argmax(axis=1)
    runs = [one.run() for one in (start, end)]
    return {
        "macro_f1": score("macro_f1", dev.gold, found), "mlm": masked_lm_loss(start, task, "dev", "cpu"),
        "cpu_seconds": [*map(cpu_seconds, runs)], "parameters": end.details.get("parameters"),
        "uri": end.uri, "answers": found.tolist(),
    }  # fmt: skip


def _show(rows: list[dict[str, Any]], dev: Split) -> None:
    arms = {}
    for change in dict.fromkeys(row["change"] for row in rows):
        answers = np.array([row["answers"] for row in rows if row["change"] == change])
        arms[change] = Arm((Predictions("macro_f1", dev.gold, answers, dev.group),))
    print("change", "macro-F1", "difference", "masked-LM loss", "CPU time", sep="\t")
    for change, arm in arms.items():
        own = [row for row in rows if row["change"] == change]
        seconds, mlm = (np.mean([np.sum(row[name]) for row in own]) for name in ("cpu_seconds", "mlm"))
        against = difference(arm, arms[PLAIN], comparisons=max(1, len(arms) - 1))
        print(change, *map(_points, (interval(arm), against)), f"{mlm:.3f}", f"{seconds:.0f} s", sep="\t")


def _points(found: Any) -> str:
    ends = "" if found.low is None else f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return f"{100 * found.mean:.1f}{ends}"
