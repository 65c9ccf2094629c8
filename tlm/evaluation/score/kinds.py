"""What the name of an arm or a mixture says: the kind of model, and the text that it learned from."""

from typing import NamedTuple

from tlm.evaluation.score.baseline import ARM, EMBEDDINGS, STATIC
from tlm.evaluation.score.imported import IMPORTED

LINEAR, ENCODER, STUDENT = "linear", "encoder", "student"
KINDS = (  # in the order of a report's rows; kinds of mixtures that a user made stand before what was imported
    *(LINEAR, EMBEDDINGS, STATIC, STUDENT, ENCODER),
    *(f"{STATIC} + {LINEAR}", f"{ENCODER} + {LINEAR}", f"{ENCODER} + {STATIC} + {LINEAR}"),
)
NETWORKS = (STUDENT, ENCODER)
PARTS = " + "  # between the arms of a mixture


class Row(NamedTuple):
    """What the name of an arm says.

    Attributes:
        name: Its name on pages.
        kind: One of `KINDS`, another mixture of these, or "imported".
        text: The arm whose text it learned from, such as bm25; "" if it learned from the task's labels alone.
    """

    name: str
    kind: str
    text: str

    @classmethod
    def of(cls, arm: str, stage: str) -> "Row":
        """Describe an arm, or a mixture such as ``bm25 + static-bm25 + baseline``."""
        if stage == IMPORTED:
            return cls(arm, IMPORTED, "")
        parts = [_part(part) for part in arm.split(PARTS)]
        encoders = {part.text for part in parts if part.kind.startswith(ENCODER)}
        names = (STATIC if part.kind == STATIC and part.text in encoders else part.name for part in parts)
        texts = dict.fromkeys(part.text for part in parts if part.text)
        return cls(PARTS.join(names), PARTS.join(part.kind for part in parts), PARTS.join(texts))

    @property
    def place(self) -> int:
        """Where rows of this kind stand in a report."""
        return KINDS.index(self.kind) if self.kind in KINDS else len(KINDS) + (self.kind == IMPORTED)


def _part(arm: str) -> Row:
    """Describe one part of a mixture; ``× 5`` stands for five seeds of it."""
    model, times, seeds = arm.partition(" × ")
    several = times + seeds
    if model == ARM:
        return Row(LINEAR + several, LINEAR + several, "")
    if model == STUDENT:
        return Row(arm, STUDENT + several, "")
    if model.startswith(f"{STATIC}-"):
        return Row(arm, STATIC + several, model.removeprefix(f"{STATIC}-"))
    if model.startswith(f"{EMBEDDINGS}-"):
        return Row(arm, EMBEDDINGS + several, "")
    return Row(arm, ENCODER + several, model)
