"""What the paper's rules say of one's own task."""

from statistics import median

from tlm import presets
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.presets.advice import Advice, advise
from tlm.progress import say


def advise_command(task: str, *, preset: str = "pocket", corpus: str = "") -> str:
    """Say what the paper would choose for a task: K, query, rho1, rho2, with the reasons.

    The reasons go to stderr; the last line on stdout is made to be the pipeline's run_overrides, which
    ``auto`` among them does by itself.

    Args:
        task: URI of the task.
        preset: Named settings to start from; `tlm show` lists them.
        corpus: URI of the corpus or its index; a small one takes a lower K. Empty: its size is left out of account.
    """
    advice = advice_for(task, presets.resolve(preset), corpus)
    for reason in advice.reasons:
        say(f"- {reason}")
    return " ".join(advice.overrides)


def advice_for(task: str, preset: presets.Preset, corpus: str = "") -> Advice:
    """What the paper would choose for the task with this URI, see `tlm.presets.advice`.

    `corpus` is the URI of the corpus or its index; "" where there is none yet.

    Raises InputError: it has no training examples.
    """
    from tlm.data.tasks.task import examples

    labelled = Artifact.open(task, "task")
    rows = [row for row in examples(labelled).to_pylist() if row["split"] == "train"]
    if not rows:
        raise InputError(f"{labelled.uri} has no training examples; expected at least one")
    words = median(len(f"{row['text']} {row['text_pair'] or ''}".split()) for row in rows)
    return advise(len(rows), words, preset, _passages(corpus) if corpus else None)


def _passages(uri: str) -> int:
    details = Artifact.open(uri, "corpus", "index").details
    return int(details["passages"] if "passages" in details else details["documents"])
