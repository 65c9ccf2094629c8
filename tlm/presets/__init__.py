"""Named presets of all settings, from seconds on a laptop to the paper's Table B.1."""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tlm.errors import InputError, nearest
from tlm.settings import SECTIONS, Preset

__all__ = ["Preset", "names", "resolve"]

_PROBES = "our probes on SciERC, dev, CPU (docs/LOG.md)"
_PAPER = "paper, Table B.1 (small scale, SciERC) and the released example scripts"

_POCKET: dict[str, Any] = {
    "retrieve": {"top_k": 50},
    "tokenizer": {"vocab_size": 6000},
    "model": {
        "architecture": "modernbert", "hidden": 128, "layers": 2, "heads": 2, "intermediate": 256, "max_length": 128,
    },
    "train": {
        "rho1": 3, "rho2": 1.0, "steps": 5000, "external_batch": 16, "internal_batch": 16, "external_length": 128,
        "lr": 3e-3, "warmup_steps": 400, "betas": (0.9, 0.98),
    },
    "finetune": {"epochs": 6, "batch": 16, "lr": 1e-3, "weight_decay": 0.01, "betas": (0.9, 0.98)},
    "source": {"retrieve": _PROBES, "tokenizer": _PROBES, "model": _PROBES, "train": _PROBES, "finetune": _PROBES},
}  # fmt: skip


def _with(base: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    return {name: {**values, **sections.get(name, {})} for name, values in base.items()}


_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": _with(
        _POCKET,
        retrieve={"top_k": 5},
        tokenizer={"vocab_size": 400},
        model={"hidden": 32, "heads": 2, "intermediate": 64, "max_length": 48},
        train={"steps": 24, "warmup_steps": 4, "external_batch": 8, "internal_batch": 8, "external_length": 48},
        finetune={"epochs": 2, "batch": 8, "evaluations": 3},
        source=dict.fromkeys(SECTIONS, "as small as it can be: for tests"),
    ),
    "demo": _with(_POCKET, train={"steps": 1200, "warmup_steps": 100}, finetune={"epochs": 4, "lr": 3e-4}),
    "pocket": _POCKET,
    "mini": _with(
        _POCKET,
        retrieve={"top_k": 500},
        tokenizer={"vocab_size": 16000},
        model={"hidden": 256, "layers": 8, "heads": 4, "intermediate": 704},
        train={
            "rho1": 19, "rho2": 20.0, "steps": 30000, "external_batch": 256, "internal_batch": 64, "lr": 1e-3,
            "warmup_steps": 1500, "precision": "bf16",
        },
        finetune={"epochs": 10, "batch": 32, "lr": 2e-4, "precision": "bf16"},
        source=dict.fromkeys(SECTIONS, "between pocket and small, for one GPU; not tuned yet"),
    ),
    "small": {
        "retrieve": {"top_k": 5000},
        "tokenizer": {"vocab_size": 30522},
        "model": {
            "architecture": "bert", "hidden": 768, "layers": 12, "heads": 12, "intermediate": 3072, "max_length": 128,
            "dropout": 0.1,
        },
        "train": {
            "rho1": 999, "rho2": 20.0, "steps": 150_000, "external_batch": 256, "internal_batch": 256,
            "external_length": 128, "lr": 1e-4, "warmup_steps": 10_000, "clip": 0, "precision": "bf16",
        },
        "finetune": {
            "steps": 30_000, "batch": 32, "lr": 2e-5, "warmup_share": 0.1, "evaluations": 30, "clip": 0,
            "precision": "bf16",
        },
        "source": {
            "retrieve": _PAPER,
            "tokenizer": "BERT-base's size (Devlin et al. 2019); the paper used BERT's own vocabulary",
            "model": "BERT-base (Devlin et al. 2019), length of Table B.1",
            "train": f"{_PAPER}; bf16 where the paper had fp16",
            "finetune": f"{_PAPER}: 30k steps, 3k of warm-up, no weight decay, head reset, dev every 1,000 steps",
        },
    },
}  # fmt: skip


def names() -> list[str]:
    """The presets there are, smallest first."""
    return list(_PRESETS)


def resolve(preset: str, overrides: Sequence[str] = ()) -> Preset:
    """The settings of `preset` after ``section.name=value`` overrides, all checked.

    Args:
        preset: One of `names`.
        overrides: Such as ``train.rho1=4`` or ``train.betas=0.9,0.98``; of two for one setting the last holds.

    Raises:
        InputError: unknown preset or setting (the nearest name is offered), or a value that cannot be.
    """
    if preset not in _PRESETS:
        raise InputError(f"preset '{preset}' is unknown{nearest(preset, _PRESETS)}")
    values = {"name": preset, **_with(_PRESETS[preset])}
    for override in overrides:
        section, name, text = _parse(override)
        values[section][name] = text.split(",") if name == "betas" else text
    try:
        return Preset.model_validate(values)
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


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
