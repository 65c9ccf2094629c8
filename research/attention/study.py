"""Results of the attention study as plain data: shares and kind of every head, counts by model and layer."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from research.attention import figures, page
from research.attention.encode import KINDS, SHARES, AttentionReader, Seen, kind_of, looks
from research.attention.subjects import Subject
from research.studies import write_study_pages
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.passages import evenly
from tlm.data.tasks.examples import read_splits
from tlm.evaluation.pages.blocks import roles
from tlm.evaluation.pages.text import visible
from tlm.progress import track
from tlm.training.device import resolve_device

SHOWN_WORDS = 12  # the text nearest to this length is drawn
SHOWN_TOKENS = 32
MOST_MAPS = 12  # of more models, only the first of each group is drawn

Model = dict[str, Any]


def write_study(
    draft: Draft, task: Artifact, subjects: Sequence[Subject], settings: dict[str, Any], device: str
) -> None:
    """Fill `draft` with heads.parquet, study.json, study.html, study.md and the figures."""
    texts, pairs = _sample(task, settings["split"], settings["examples"])
    device = resolve_device(device)
    shown = min(range(len(texts)), key=lambda row: (abs(len(texts[row].split()) - SHOWN_WORDS), row))
    arms = {subject.group: subject.arm for subject in subjects}
    role = dict(zip(arms, roles(arms.values()), strict=True))
    models: list[Model] = []
    maps: list[dict[str, str]] = []
    drawn: dict[str, str] = {}
    for number, subject in enumerate(subjects):
        reader = AttentionReader(subject.folder(), device, settings["max_length"])
        shares, tokens, example = _read(reader, texts, pairs, shown, subject.name)
        model = _model(shares, settings["threshold"])
        if len(subjects) <= MOST_MAPS or subject.group not in {other["group"] for other in models}:
            kinds = np.reshape([head["kind"] for head in model["heads"]], shares.shape[:2]).tolist()
            drawn[f"map-{number:02d}"] = figures.maps(**example, kinds=kinds)
            maps.append({"figure": f"map-{number:02d}", "name": subject.name})
        known = {"name": subject.name, "group": subject.group, "role": role[subject.group]}
        models.append(known | {"architecture": reader.architecture, "tokens": tokens} | model)
    groups = [_group(name, [model for model in models if model["group"] == name]) for name in role]
    findings = [_comparison(groups, settings["threshold"])] if len(groups) > 1 else []
    contents = {
        "task": visible(task.details["name"], 80),
        "settings": {name: settings[name] for name in ("split", "threshold", "max_length")},
        "examples": len(texts),
        "models": models,
        "groups": groups,
        "example": visible(texts[shown], 300),
        "findings": findings + [_sentence(group) for group in groups],
        "maps": maps,
    }
    drawn |= {"layers": figures.layers(groups, settings["threshold"]), "places": figures.places(groups)}
    title = f"Attention heads on {contents['task']}"
    write_study_pages(draft.folder, title, list(page.blocks(contents, drawn)), contents, drawn)
    _write_heads(draft, models)
    draft.counts.update(models=len(models), examples=len(texts), heads=sum(len(model["heads"]) for model in models))
    draft.details["models"] = {model["name"]: model["counts"] for model in models}
    draft.run["device"] = device


def _sample(task: Artifact, split: str, most: int) -> tuple[list[str], list[str] | None]:
    """Texts (and second texts, if the task has pairs) of at most `most` examples of a split, evenly spaced."""
    found = read_splits(task, split)[split]
    rows = evenly(len(found.texts), most)
    pairs = None if found.pairs is None else [found.pairs[row] for row in rows]
    return [found.texts[row] for row in rows], pairs


def _read(
    reader: AttentionReader, texts: list[str], pairs: list[str] | None, shown: int, name: str
) -> tuple[NDArray[np.float64], int, dict[str, Any]]:
    """Shares of all heads [layers, heads, 8], the number of tokens, and the map of the text `shown`."""
    total, tokens, example = np.zeros((reader.layers, reader.heads, len(SHARES))), 0, {}
    for number, seen in enumerate(track(reader.read(texts, pairs), f"reading {name}", len(texts), "texts")):
        total += looks(seen.weights, seen.special, seen.period)
        tokens += int((~seen.special).sum())
        if number == shown:
            example = _first_tokens(seen)
    return total / max(tokens, 1), tokens, example


def _first_tokens(seen: Seen) -> dict[str, Any]:
    """Attention and tokens of a text; of a long text the first tokens and the last, [SEP]."""
    last = len(seen.tokens) - 1
    kept = [*range(min(last, SHOWN_TOKENS - 1)), last]
    return {"weights": seen.weights[..., kept, :][..., kept], "tokens": [seen.tokens[place] for place in kept]}


def _model(shares: NDArray[np.float64], threshold: float) -> Model:
    """Heads, layers and counts of a model from the shares of its heads, [layers, heads, 8]."""
    heads = []
    for layer, head in np.ndindex(shares.shape[:2]):
        share = dict(zip(SHARES, shares[layer, head].tolist(), strict=True))
        heads.append({"layer": layer + 1, "head": head + 1, "kind": kind_of(share, threshold), **share})
    return {
        "counts": _tally(heads),
        "share": dict(zip(SHARES, shares.mean(axis=(0, 1)).tolist(), strict=True)),
        "layers": [{"layer": layer, **_tally(list(those))} for layer, those in groupby(heads, itemgetter("layer"))],
        "heads": heads,
    }


def _tally(heads: list[dict[str, Any]]) -> dict[str, int]:
    return {kind: sum(head["kind"] == kind for head in heads) for kind in KINDS}


def _group(name: str, models: list[Model]) -> dict[str, Any]:
    """Models that differ in their seed only; counts and shares are means over them."""
    depth = max(len(model["layers"]) for model in models)
    layers = [[model["layers"][layer] for model in models if layer < len(model["layers"])] for layer in range(depth)]
    return {
        "name": name,
        "role": models[0]["role"],
        "models": len(models),
        "heads": float(np.mean([len(model["heads"]) for model in models])),
        "counts": _means([model["counts"] for model in models], KINDS),
        "share": _means([model["share"] for model in models], SHARES),
        "points": [
            {name: head[name] for name in ("layer", "kind", "adjacent", "vertical")}
            for model in models
            for head in model["heads"]
        ],
        "layers": [{"layer": number, **_means(rows, KINDS)} for number, rows in enumerate(layers, 1)],
    }


def _means(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, float]:
    return {name: float(np.mean([row[name] for row in rows])) for name in names}


def _comparison(groups: list[dict[str, Any]], threshold: float) -> str:
    parts = []
    for kind, best, word in (("positional", max, "largest"), ("vertical", min, "smallest")):
        rates = [group["counts"][kind] / group["heads"] for group in groups]
        if rates.count(best(rates)) == 1:
            parts.append(f"{groups[rates.index(best(rates))]['name']} has the {word} share of {kind} heads")
    if parts:
        return f"{' and '.join(parts)}."
    by_share = sorted(groups, key=lambda group: group["share"]["adjacent"])
    low, *_, high = (f"{group['name']} ({group['share']['adjacent']:.0%} of tokens)" for group in by_share)
    degree = f"Heads look at a neighbour most often in {high} and least often in {low}."
    if not any(group["counts"][kind] for group in groups for kind in ("positional", "vertical")):
        return f"No head is positional or vertical at the threshold of {threshold:.0%}. {degree}"
    return f"No model stands out by its share of positional or vertical heads. {degree}"


def _sentence(group: dict[str, Any]) -> str:
    counts, share = group["counts"], group["share"]
    average = f", on average over {group['models']} models" if group["models"] > 1 else ""
    return (
        f"{group['name']}: {counts['positional']:.3g} of {group['heads']:.3g} heads are positional and "
        f"{counts['vertical']:.3g} vertical{average}; a neighbour gets the maximum for {share['adjacent']:.0%} "
        f"of tokens, [CLS], [SEP] or a period for {share['vertical']:.0%}."
    )


def _write_heads(draft: Draft, models: list[Model]) -> None:
    columns = {"model": pa.string(), "layer": pa.int32(), "head": pa.int32(), "kind": pa.string()}
    rows = [{"model": model["name"], **head} for model in models for head in model["heads"]]
    table = pa.Table.from_pylist(rows, schema=pa.schema({**columns, **dict.fromkeys(SHARES, pa.float64())}))
    pq.write_table(table, draft.folder / "heads.parquet", compression="zstd", row_group_size=65536)
    draft.rows["heads.parquet"] = table.num_rows
