"""What the attention study finds, as plain data: shares and kind of every head, counts by model and layer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tlm.analysis.attention.encode import AttentionReader, Seen
from tlm.analysis.attention.heads import KINDS, SHARES, kind_of, looks, tally
from tlm.analysis.attention.subjects import Subject
from tlm.analysis.page import write_pages
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.evaluation.pages.sampling import evenly, rows_at
from tlm.evaluation.pages.text import visible
from tlm.evaluation.report.runs import ARMS
from tlm.progress import track
from tlm.training.device import resolve_device

SHOWN_WORDS = 12  # of the text whose maps are drawn
SHOWN_TOKENS = 32
MOST_MAPS = 12  # models whose maps are drawn; of more, the first of each group

Contents = dict[str, Any]


def write_study(
    draft: Draft, task: Artifact, subjects: Sequence[Subject], settings: dict[str, Any], device: str
) -> None:
    """Fill `draft` with heads.parquet, study.json, study.html, study.md and the figures."""
    texts, pairs = sampled(task, settings["split"], settings["examples"])
    place = resolve_device(device)
    shown = min(range(len(texts)), key=lambda row: (abs(len(texts[row].split()) - SHOWN_WORDS), row))
    models, maps = [], []
    for subject, role in zip(subjects, roles(subjects), strict=True):
        reader = AttentionReader(subject.folder(), place, settings["max_length"])
        model, one = studied(reader, texts, pairs, shown, settings["threshold"], subject.name)
        models.append({"name": subject.name, "group": subject.group, "role": role, **model})
        maps.append(one)
    told: Contents = {
        "task": visible(task.details["name"], 80),
        "settings": {name: settings[name] for name in ("split", "threshold", "max_length")},
        "examples": len(texts),
        "models": models,
        "groups": grouped(models),
        "example": visible(texts[shown], 300),
    }
    told["findings"] = findings(told)
    _write_heads(draft, models)
    write_pages(draft.folder, "attention", told, _figures(told, maps))
    draft.counts.update(models=len(models), examples=len(texts), heads=sum(len(model["heads"]) for model in models))
    draft.details["models"] = {model["name"]: model["counts"] for model in models}
    draft.run["device"] = place


def sampled(task: Artifact, split: str, most: int) -> tuple[list[str], list[str] | None]:
    """Texts (and second texts, if the task has pairs) of at most `most` examples of a split, evenly spaced."""
    splits = pq.read_table(task.path("examples.parquet"), columns=["split"], partitioning=None)["split"]
    inside = np.flatnonzero(pc.equal(splits, split).to_numpy())
    rows = rows_at(task, "examples.parquet", inside[evenly(len(inside), most)].tolist())
    chosen = [rows[row] for row in sorted(rows)]
    pairs = [row["text_pair"] or "" for row in chosen] if task.details["pair"] else None
    return [row["text"] for row in chosen], pairs


def studied(
    reader: AttentionReader, texts: list[str], pairs: list[str] | None, shown: int, threshold: float, name: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Counts and shares of one model over all texts; and the maps of the text `shown`, for the figure."""
    total = np.zeros((reader.layers, reader.heads, len(SHARES)))
    asked, maps = 0, {}
    for number, seen in enumerate(track(reader.read(texts, pairs), f"reading {name}", len(texts), "texts")):
        total += looks(seen.weights, seen.special, seen.period)
        asked += int((~seen.special).sum())
        if number == shown:
            maps = _shown(seen)
    shares = total / max(asked, 1)
    heads = [
        _head(layer, head, dict(zip(SHARES, map(float, shares[layer, head]), strict=True)), threshold)
        for layer in range(reader.layers)
        for head in range(reader.heads)
    ]
    layers = [
        {"layer": layer + 1, **tally([head["kind"] for head in heads if head["layer"] == layer + 1])}
        for layer in range(reader.layers)
    ]
    average = dict(zip(SHARES, map(float, shares.mean(axis=(0, 1))), strict=True))
    model = {
        "architecture": reader.architecture,
        "tokens": asked,
        "counts": tally([head["kind"] for head in heads]),
        "share": average,
        "layers": layers,
        "heads": heads,
    }
    return model, maps | {
        "kinds": [[head["kind"] for head in heads if head["layer"] == row["layer"]] for row in layers]
    }


def _head(layer: int, head: int, shares: dict[str, float], threshold: float) -> dict[str, Any]:
    return {"layer": layer + 1, "head": head + 1, "kind": kind_of(shares, threshold), **shares}


def _shown(seen: Seen) -> dict[str, Any]:
    """Of a long text the first tokens and the last, [SEP]."""
    count = len(seen.tokens)
    kept = [*range(min(count, SHOWN_TOKENS) - 1), count - 1]
    return {"weights": seen.weights[..., kept, :][..., kept], "tokens": [seen.tokens[place] for place in kept]}


def roles(subjects: Sequence[Subject]) -> list[str]:
    """The colour role of each model: its group's; an arm's own for its first group, spare ones for others."""
    found: dict[str, str] = {}
    for subject in subjects:
        if subject.group not in found:
            free = subject.arm in ARMS and subject.arm not in found.values()
            spare = sum(role.startswith("other-") for role in found.values()) % 4
            found[subject.group] = subject.arm if free else f"other-{spare}"
    return [found[subject.group] for subject in subjects]


def grouped(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Models that differ in their seed only, together: counts and shares are means over them."""
    names = list(dict.fromkeys(model["group"] for model in models))
    return [_group(name, [model for model in models if model["group"] == name]) for name in names]


def _group(name: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    depth = max(len(model["layers"]) for model in models)
    return {
        "name": name,
        "role": models[0]["role"],
        "models": len(models),
        "heads": mean([len(model["heads"]) for model in models]),
        "counts": {kind: mean([model["counts"][kind] for model in models]) for kind in KINDS},
        "share": {name: mean([model["share"][name] for model in models]) for name in SHARES},
        "points": [
            {name: head[name] for name in ("layer", "kind", "adjacent", "vertical")}
            for model in models
            for head in model["heads"]
        ],
        "layers": [_layer(layer, [one for one in models if layer < len(one["layers"])]) for layer in range(depth)],
    }


def _layer(layer: int, models: list[dict[str, Any]]) -> dict[str, Any]:
    return {"layer": layer + 1, **{kind: mean([one["layers"][layer][kind] for one in models]) for kind in KINDS}}


def mean(values: Sequence[float]) -> float:
    """A plain float."""
    return float(np.mean(values))


def findings(told: Contents) -> list[str]:
    """What the numbers say: first the comparison, if there are two groups or more, then a sentence for each group."""
    groups = told["groups"]
    compared = [_compared(groups, told["settings"]["threshold"])] if len(groups) > 1 else []
    return compared + [_sentence(group) for group in groups]


def _compared(groups: list[dict[str, Any]], threshold: float) -> str:
    positional = sorted(groups, key=lambda group: _rate(group, "positional"))
    vertical = sorted(groups, key=lambda group: _rate(group, "vertical"))
    by_degree = sorted(groups, key=lambda group: group["share"]["adjacent"])
    degree = (
        f"{by_degree[-1]['name']} looks most at neighbours ({by_degree[-1]['share']['adjacent']:.0%} of tokens), "
        f"least {by_degree[0]['name']} ({by_degree[0]['share']['adjacent']:.0%})."
    )
    if not any(_rate(group, kind) for group in groups for kind in ("positional", "vertical")):
        return f"No head is positional or vertical by the paper's measure of {threshold:.0%}; by degree, {degree}"
    parts = []
    if _rate(positional[-1], "positional") > _rate(positional[-2], "positional"):
        parts.append(f"{positional[-1]['name']} has the most positional heads")
    if _rate(vertical[0], "vertical") < _rate(vertical[1], "vertical"):
        parts.append(f"{vertical[0]['name']} the fewest vertical ones" if parts else
                     f"{vertical[0]['name']} has the fewest vertical heads")  # fmt: skip
    if not parts:
        return f"No model stands out by the number of positional or vertical heads; by degree, {degree}"
    return f"{', '.join(parts)}, as shares of all heads."


def _rate(group: dict[str, Any], kind: str) -> float:
    return float(group["counts"][kind] / group["heads"])


def _sentence(group: dict[str, Any]) -> str:
    counts, share = group["counts"], group["share"]
    average = f", on average over {group['models']} models" if group["models"] > 1 else ""
    return (
        f"{group['name']}: {counts['positional']:.3g} of {group['heads']:.3g} heads are positional and "
        f"{counts['vertical']:.3g} vertical{average}; a neighbour gets the maximum for {share['adjacent']:.0%} "
        f"of tokens, [CLS], [SEP] or a period for {share['vertical']:.0%}."
    )


def _figures(told: Contents, maps: list[dict[str, Any]]) -> dict[str, str]:
    from tlm.analysis.attention import figures

    models = told["models"]
    firsts = {model["group"]: number for number, model in reversed(list(enumerate(models)))}
    shown = range(len(models)) if len(models) <= MOST_MAPS else sorted(firsts.values())
    drawn = {f"map-{number:02d}": figures.maps(**maps[number]) for number in shown}
    told["maps"] = [{"figure": f"map-{number:02d}", "name": models[number]["name"]} for number in shown]
    return {
        "layers": figures.layers(told["groups"], told["settings"]["threshold"]),
        "places": figures.places(told["groups"]),
        **drawn,
    }


def _write_heads(draft: Draft, models: list[dict[str, Any]]) -> None:
    rows = [{"model": model["name"], **head} for model in models for head in model["heads"]]
    names: list[tuple[str, Any]] = [("model", pa.string()), ("layer", pa.int32()), ("head", pa.int32())]
    schema = pa.schema([*names, ("kind", pa.string()), *((name, pa.float64()) for name in SHARES)])
    table = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(table, draft.folder / "heads.parquet", compression="zstd", row_group_size=65536)
    draft.rows["heads.parquet"] = table.num_rows
