"""The architectures that are written here. For all others we use the modules of `transformers`, which load slowly."""

from typing import Any

from tlm.settings import Model

OWN = ("bert", "modernbert")


def model_settings(model: Model) -> dict[str, Any]:
    """The settings of the encoder that can change a result: these are in a step's key, and no others.

    `positions` counts where it differs from `max_length`, `token_types` where the architecture has them, and
    `spans_first` where it is chosen.
    """
    without = {"token_types"} if model.architecture == "modernbert" else set()
    if model.reach == model.max_length:
        without.add("positions")
    if not model.spans_first:
        without.add("spans_first")
    return model.model_dump(mode="json", exclude=without)
