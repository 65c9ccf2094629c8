"""The presets for the scales that the paper does not have, read from ``scales.toml``."""

import tomllib
from importlib.resources import files
from typing import Any

from tlm.settings import SECTIONS

Values = dict[str, dict[str, Any]]


def _scales() -> dict[str, Values]:
    scales = tomllib.loads(files("tlm.presets").joinpath("scales.toml").read_text(encoding="utf-8"))
    return {name: _values(scales, name) for name in scales}


def _values(scales: dict[str, Any], name: str) -> Values:
    """The values of a scale: its own, and those of its base."""
    own = scales[name]
    base: Values = _values(scales, own["base"]) if "base" in own else {}
    values = {section: {**base.get(section, {}), **own.get(section, {})} for section in SECTIONS}
    source = dict.fromkeys(SECTIONS, own["source"]) if "source" in own else base["source"]
    return {**values, "source": source}


SCALES = _scales()
