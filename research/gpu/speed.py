"""How fast are steps, and what is each habit of a GPU and each lever that is not taken yet good for?"""

from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from research.benchmarks.measure import Side, compare, per_second, under
from research.benchmarks.row import Result, against, not_measured
from research.benchmarks.training_cpu import EXTERNAL, INTERNAL
from research.benchmarks.training_gpu import STEPS, cudnn_attention, lines
from research.gpu.stand import Stand

REPEATS = 3
WITHOUT: dict[str, dict[str, Any]] = {
    "lengths as they are": {"length_multiple": 1},
    "a vocabulary as it is": {"vocabulary_multiple": 1},
    "memory that is not page-locked": {"pinned": False},
    "batches made in time": {"ahead": False},
}


def beside_others(stand: Stand, name: str) -> list[Result]:
    """Tokens a second and the share of the peak, beside the authors' way and Hugging Face's Trainer."""
    shape = stand.shape(name)
    return [
        result for kind in (EXTERNAL, INTERNAL) for result in lines(shape[0], stand.bench(shape, kind), stand.rehearsal)
    ]


def levers(stand: Stand, name: str) -> list[Result]:
    """Our step beside the same one without each habit, with cuDNN's attention, and compiled."""
    from tlm.training.model.encoder import GPU, OF_KIND

    shape, steps = stand.shape(name), 4 if stand.rehearsal else STEPS
    bench = stand.bench(shape, EXTERNAL)
    habits = replace(GPU, pinned=not stand.rehearsal)  # a CPU has no page-locked memory
    without = {name: off for name, off in WITHOUT.items() if not (stand.rehearsal and "pinned" in off)}

    def side(off: dict[str, Any], **more: Any) -> Side:
        return under(
            lambda: patch.dict(OF_KIND, {bench.device.type: replace(habits, **off)}), bench.ours(steps, **more)
        )

    sides = {"ours": side({}), **{other: side(off) for other, off in without.items()}}
    sides["cuDNN's attention"] = under(cudnn_attention, side({}))
    sides["states cast once"] = side({}, change=_cast_once)
    measured = compare(sides, REPEATS, warm_up=1)
    label, tokens = f"{shape[0]}, a step", per_second("tokens")
    notes = {"cuDNN's attention": "With the time to build a graph for each new shape of a batch."}
    found = [against(label, measured, other, tokens, note=notes.get(other, "")) for other in sides if other != "ours"]
    try:
        both = compare({"ours": side({}), "compiled": side({}, change=_compiled)}, REPEATS, warm_up=2)
        found.append(against(label, both, "compiled", tokens, note="Layers after attention by torch.compile."))
    except Exception as error:  # whatever a compiler lacks here
        found.append(not_measured(f"{label}, compiled", str(error).partition("\n")[0][:200]))
    return found


def _cast_once(work: Any) -> None:
    """Cast what queries, keys and values are made of once; autocast does it for each, and adds gradients in fp32."""
    import torch

    def attend(whole: Any, hidden: Any, *more: Any) -> Any:
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
        return whole(hidden.to(dtype), *more)

    for layer in work.encoder.body.layers():
        layer.attend = partial(attend, layer.attend)


def _compiled(work: Any) -> None:
    """Fuse casts, dropout, residual and norm of each layer."""
    import torch

    for layer in work.encoder.body.layers():
        layer.finish = torch.compile(layer.finish, dynamic=True)
