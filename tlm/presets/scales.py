"""The scales that the paper does not have: from seconds on a laptop to ten minutes on one GPU."""

from typing import Any

from tlm.settings import SECTIONS

Values = dict[str, dict[str, Any]]

_PROBES = "our probes on SciERC, dev, CPU (docs/LOG.md)"


def _with(base: Values, **sections: dict[str, Any]) -> Values:
    return {name: {**values, **sections.get(name, {})} for name, values in base.items()}


_POCKET: Values = {
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
    "source": dict.fromkeys(SECTIONS, _PROBES),
}  # fmt: skip

SCALES: dict[str, Values] = {
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
}  # fmt: skip
