"""Named presets of all settings, from seconds on a laptop to the paper's Table B.1."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tlm.errors import InputError, nearest
from tlm.presets.published import paper_presets
from tlm.presets.scales import SCALES, Values
from tlm.settings import SECTIONS, Preset

__all__ = ["OVERRIDDEN", "Preset", "named", "names", "resolve"]

OVERRIDDEN = "set for this run"


def names() -> list[str]:
    """The presets there are, smallest first, then the paper's."""
    return [*SCALES, *paper_presets()]


def resolve(preset: str, overrides: Sequence[str] = ()) -> Preset:
    """The settings of `preset` after ``section.name=value`` overrides, all checked.

    Args:
        preset: One of `names`.
        overrides: Such as ``train.rho1=4`` or ``train.betas=0.9,0.98``; of two for one setting the last holds.

    Raises:
        InputError: unknown preset or setting (the nearest name is offered), or a value that cannot be.
    """
    values = {section: dict(given) for section, given in _values(preset).items()}
    for override in overrides:
        section, name, text = _parse(override)
        values[section][name] = text.split(",") if name == "betas" else text
        values["source"][f"{section}.{name}"] = OVERRIDDEN
    try:
        return Preset.model_validate({"name": preset, **values})
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


def named(preset: str, overrides: Sequence[str] = ()) -> dict[str, str]:
    """What a run was started with, for its run.json: other names for the same settings give the same result."""
    return {"preset": preset, "overrides": " ".join(overrides)}


def _values(preset: str) -> Values:
    known = SCALES if preset in SCALES else paper_presets()
    if preset not in known:
        raise InputError(f"preset '{preset}' is unknown{nearest(preset, names())}")
    return known[preset]


def _parse(override: str) -> tuple[str, str, str]:
    setting, equals, text = override.partition("=")
    setting, text = setting.strip(), text.strip()
    known = [f"{section}.{name}" for section, fields in SECTIONS.items() for name in fields.model_fields]
    if not equals or not text:
        raise InputError(f"setting '{override}' has no value; expected section.name=value, such as train.rho1=4")
    if setting not in known:
        inside = [name for name in known if name.endswith(f".{setting}")]
        raise InputError(f"setting '{setting}' is unknown{nearest(inside[0] if inside else setting, known)}")
    section, _, name = setting.partition(".")
    return section, name, text


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    setting = ".".join(str(part) for part in first["loc"][:2])
    reasons = sorted({_reason(other) for other in error.errors() if other["loc"][:2] == first["loc"][:2]})
    given = ",".join(first["input"]) if isinstance(first["input"], list) else first["input"]
    return f"setting {setting}={given} cannot be: expected {' or '.join(reasons)}"


def _reason(error: ErrorDetails) -> str:
    if error["type"] in ("missing", "too_long"):
        return "two numbers, such as 0.9,0.98"
    return error["msg"].replace("Input should be ", "")
