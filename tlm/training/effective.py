"""The settings that can change what a stage makes: these are in its key, and no others.

A section is given without those that do nothing beside its other values; what is left out has any value.
"""

from typing import Any

from tlm.settings import Finetune, Model, Train
from tlm.training.input.mixture import Mixture

_OF_EXTERNAL = {"external_batch", "external_length"}
_OF_INTERNAL = {"internal_batch", "rho2"}
_OF_BOTH_LOSSES = {"internal_loss", "mask_internal"}


def model_settings(model: Model) -> dict[str, Any]:
    """Those of the encoder's shape: `positions` only where they are not `max_length`, no token types for modernbert."""
    without = {"token_types"} if model.architecture == "modernbert" else set()
    if model.reach == model.max_length:
        without.add("positions")
    return model.model_dump(mode="json", exclude=without)


def train_settings(train: Train, *, external: bool) -> dict[str, Any]:
    """Those of stage 1, with a subset (`external`) or without one, when every step is internal."""
    internal_steps = Mixture(train.rho1 if external else 0).internal_before(train.steps)
    without = set() if external else {"rho1"}
    if internal_steps == train.steps:
        without |= _OF_EXTERNAL
    if internal_steps == 0:
        without |= _OF_INTERNAL
    if internal_steps == 0 or train.rho2 == "inf":
        without |= _OF_BOTH_LOSSES
    never = {"rho1": "inf"} if internal_steps == 0 else {}  # a rho1 of all steps or more comes to the same
    return train.model_dump(mode="json", exclude=without) | never


def finetune_settings(finetune: Finetune) -> dict[str, Any]:
    """Those of stage 2: `epochs` only where no steps are given."""
    return finetune.model_dump(mode="json", exclude={"epochs"} if finetune.steps else None)
