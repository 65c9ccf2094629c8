"""Presets of all settings, from seconds on a laptop to the paper's Table B.1."""

from collections.abc import Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tlm.errors import InputError, nearest
from tlm.presets.published import paper_presets
from tlm.presets.scales import SCALES
from tlm.settings import SECTIONS, Preset

__all__ = ["OVERRIDDEN", "Preset", "named", "names", "resolve"]

OVERRIDDEN = "set for this run"


def names() -> list[str]:
    """Return the names of the presets: smallest first, then those of the paper."""
    return [*SCALES, *paper_presets()]


def resolve(preset: str, overrides: Sequence[str] = ()) -> Preset:
    """Return the settings of `preset` after the overrides, all checked.

    Args:
        preset: One of `names`.
        overrides: Such as ``train.rho1=4`` or ``train.betas=0.9,0.98``; if a setting is given twice, the last counts.

    Raises:
        InputError: an unknown preset or setting (with a hint), or a value out of range.
    """
    known = SCALES if preset in SCALES else paper_presets()
    if preset not in known:
        raise InputError(f"preset '{preset}' is unknown{nearest(preset, names())}")
    values = {section: dict(given) for section, given in known[preset].items()}
    for override in overrides:
        setting, text = _parse(override)
        section, _, name = setting.partition(".")
        values[section][name] = text.split(",") if name == "betas" else text
        values["source"][setting] = OVERRIDDEN
    try:
        return Preset.model_validate({"name": preset, **values})
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


def named(preset: str, overrides: Sequence[str] = ()) -> dict[str, str]:
    """Return how the settings were named, for run.json; they may have other names in another run."""
    return {"preset": preset, "overrides": " ".join(overrides)}


def _parse(override: str) -> tuple[str, str]:
    setting, _, text = map(str.strip, override.partition("="))
    known = [f"{section}.{name}" for section, fields in SECTIONS.items() for name in fields.model_fields]
    if not text:
        raise InputError(f"setting '{override}' has no value; expected section.name=value, such as train.rho1=4")
    if setting not in known:
        inside = [name for name in known if name.endswith(f".{setting}")]
        raise InputError(f"setting '{setting}' is unknown{nearest(inside[0] if inside else setting, known)}")
    return setting, text


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    setting = ".".join(str(part) for part in first["loc"][:2])
    reasons = {_expected(other) for other in error.errors() if other["loc"][:2] == first["loc"][:2]}
    given = ",".join(first["input"]) if isinstance(first["input"], list) else first["input"]
    return f"setting {setting}={given} cannot be: expected {' or '.join(sorted(reasons))}"


def _expected(error: ErrorDetails) -> str:
    if error["type"] in ("missing", "too_long"):
        return "two numbers, such as 0.9,0.98"
    return error["msg"].replace("Input should be ", "")
