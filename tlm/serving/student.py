"""A student: stage 2 whose labels are a teacher's answers, on batches of retrieved text between those of the task."""

import numpy as np
from numpy.typing import NDArray

from tlm.artifacts.produce import Draft, Recipe
from tlm.settings.options import Compute
from tlm.settings.sections import Finetune
from tlm.training.classification import Classification, begin, carry_out
from tlm.training.distributed.group import ProcessGroup
from tlm.training.input.batches import Batch, External, Interleaving
from tlm.training.input.texts import Texts
from tlm.training.model.encoder import Inputs
from tlm.training.model.losses import Losses, distillation_loss

Values = list[NDArray[np.float32]]


def teach(
    draft: Draft, recipe: Recipe, answers: Values, settings: Finetune, compute: Compute, root: str | None
) -> None:
    """Train a student and write a `model`. Of several processes, the first one writes it.

    Args:
        draft: Where to write.
        recipe: The recipe of the student: arm, seed, temperature and rho1, and the artifacts ``checkpoint``, ``task``
            and ``task_tokens``; with retrieved text ``subset_tokens``.
        settings: The settings of stage 2.
        answers: The teacher's answers: about the retrieved text, if there is any, and about the task.
        compute: Where to train, and how often to save the state.
        root: The store, as the step was given it.
    """
    with ProcessGroup.current().in_turn():
        work = Distillation(recipe, settings, answers)
    teacher, passages = recipe.settings["teacher"], len(work.passages) if work.passages is not None else 0
    work.label = f"a student of {teacher}, seed {recipe.settings['seed']}"
    arm = recipe.inputs["checkpoint"].details["arm"]
    carry_out(work, draft, recipe, compute, root, arm=arm, teacher=teacher, taught_passages=passages)
    draft.details["chosen"] = {"teacher": teacher, "passages": passages, **draft.details.get("chosen", {})}


class Distillation(Classification):
    """The work of a student: rho1 batches of text without labels for each batch of training examples.

    Attributes:
        passages: The retrieved text; None without a subset.
        answers: The teacher's answers, in the order of the sources of `external`; last, those about the task.
    """

    def __init__(self, recipe: Recipe, settings: Finetune, answers: Values) -> None:
        super().__init__(*begin(recipe, settings))
        examples, tokens = self.examples, recipe.inputs.get("subset_tokens")
        self.temperature = recipe.settings["temperature"]
        self.passages = None if tokens is None else Texts.open(tokens, self.shape.max_length, self.shape.cut)
        unlabelled = examples.texts, examples.without_label()
        self.external = External(self.passages, unlabelled, settings.batch, recipe.settings["seed"])
        self.answers = [examples.scale.standardised(one) for one in answers] if examples.scale else answers
        rho1: int = recipe.settings["rho1"] if self.external else 0
        self.mixture = Interleaving(rho1)
        self.steps *= 1 + rho1

    def batch(self, step: int) -> Batch:
        """The batch of `step`, with the teacher's answers as labels."""
        index = self.mixture.index(step)
        if not self.mixture.is_internal(step):
            return self.external.batch(index, self.answers)
        return self.stream.batch(index, self.answers[-1])

    def losses(self, step: int, inputs: Inputs) -> Losses:
        """The losses of a part of that batch."""
        return distillation_loss(self.model, inputs, self.temperature)
