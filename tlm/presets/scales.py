"""The presets for the scales that the paper does not have, read from ``scales.toml``."""

import tomllib
from importlib.resources import files
from typing import Any

from tlm.settings import SECTIONS

Values = dict[str, dict[str, Any]]


def _scales() -> dict[str, Values]:
    scales = tomllib.loads(files("tlm.presets").joinpath("scales.toml").read_text(encoding="utf-8"))
    made = {}
    for name, own in scales.items():
        base = scales[own.get("base", name)]
        made[name] = {section: {**base[section], **own.get(section, {})} for section in SECTIONS}
        made[name]["source"] = dict.fromkeys(SECTIONS, own.get("source", base["source"]))
    return made


SCALES = _scales()
