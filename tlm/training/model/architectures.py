"""Which encoders there are: two written out here, the others by `transformers`' own modules, which load slowly."""

from tlm.errors import InputError, nearest
from tlm.settings import Model

OWN = ("bert", "modernbert")


def check_architecture(model: Model) -> None:
    """Raise InputError where there is no such architecture, or `transformers` makes none of this shape."""
    if model.architecture in OWN:
        return
    from tlm.training.model import foreign

    if model.architecture not in foreign.model_types():
        hint = nearest(model.architecture, (*OWN, *foreign.model_types()))
        raise InputError(
            f"model.architecture={model.architecture} is no encoder of transformers that predicts words and classes"
            f"{hint}"
        )
    foreign.check_shape(model)
