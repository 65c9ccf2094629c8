"""Showing a preset: every setting with its value, its meaning, and where the values come from."""

from collections.abc import Iterator, Sequence

from tlm import presets
from tlm.settings import SECTIONS, Preset


def show(preset: str = "", *, overrides: Sequence[str] = ()) -> str:
    """Print a preset: every setting, its value, what it means, where it comes from.

    Args:
        preset: Which one; without a name the presets there are.
        overrides: Settings to change, such as train.rho1=4.
    """
    if not preset:
        return "\n".join(presets.names())
    return "\n".join(_lines(presets.resolve(preset, overrides)))


def _lines(preset: Preset) -> Iterator[str]:
    for section, fields in SECTIONS.items():
        yield f"{section}  (from: {preset.source[section]})"
        values = getattr(preset, section)
        for name, field in fields.model_fields.items():
            yield f"  {section}.{name}={_plain(getattr(values, name))}".ljust(36) + f"  {field.description}"


def _plain(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
