"""Advice on the settings for a task, by the paper's rules."""

from statistics import median

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.presets.advice import Advice, advise
from tlm.progress import say


def advise_command(task: str, *, preset: str = "pocket", corpus: str = "") -> str:
    """Print what the paper would choose for a task: K, query, rho1 and rho2, with the reasons.

    The reasons go to stderr. The last line on stdout can be given to the pipeline as run_overrides; the override
    ``auto`` makes the pipeline do the same.

    Args:
        task: URI of the task.
        preset: Named settings to start from; `tlm show` lists them.
        corpus: URI of the corpus or its index; a small corpus needs a lower K. Empty: its size is not considered.
    """
    advice = advice_for(task, presets.resolve(preset), corpus)
    for reason in advice.reasons:
        say(f"- {reason}")
    return " ".join(advice.overrides)


def advice_for(task: str, preset: presets.Preset, corpus: str = "") -> Advice:
    """Return what the paper would choose for a task.

    Args:
        task: URI of the task.
        preset: The settings to start from.
        corpus: URI of the corpus or its index; "" if there is none yet.

    Raises:
        InputError: the task has no training examples.
    """
    from tlm.data.tasks.task import examples

    labelled = Artifact.open(task, "task")
    rows = [row for row in examples(labelled).to_pylist() if row["split"] == "train"]
    if not rows:
        raise InputError(f"{labelled.uri} has no training examples; expected at least one")
    words = median(len(f"{row['text']} {row['text_pair'] or ''}".split()) for row in rows)
    details = Artifact.open(corpus, "corpus", "index").details if corpus else {}
    return advise(len(rows), words, preset, details.get("passages", details.get("documents")))
