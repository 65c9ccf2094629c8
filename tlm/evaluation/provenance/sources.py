"""The raw material of an artifact, through its whole lineage, as plain data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tlm.artifacts.artifact import Artifact
from tlm.data.passages import passages
from tlm.evaluation.report.lineage import STEPS, Lineage, dropped, lineage_rows

LICENSE = "license"
Counts = Counter[tuple[str, str]]  # passages by source and licence


def contents(subject: Artifact, found: list[Artifact], lineage: Lineage) -> dict[str, Any]:
    """Collect where everything that `subject` was made from came from.

    Args:
        subject: The artifact.
        found: The artifact and all that it was made from.
        lineage: Knows which of these are gone.
    """
    corpora, subsets = ([one for one in found if one.manifest.kind == kind] for kind in ("corpus", "subset"))
    behind = {one.folder_name: lineage.everything([one]) for one in subsets}
    corpus = next(iter(corpora), None)
    return {
        "subject": subject.as_input().model_dump() | {"name": name_of(subject), "tlm": subject.manifest.tool},
        "corpora": [_corpus(one, [own for own in subsets if _among(one, behind[own.folder_name])]) for one in corpora],
        "files": [file for one in found for file in _files(one)],
        "dropped": [dropped(one, corpus) for one in found if one.manifest.kind in STEPS],
        "lineage": lineage_rows(found),
        "gone": lineage.missing(),
    }


def _among(artifact: Artifact, found: list[Artifact]) -> bool:
    return artifact.folder_name in (one.folder_name for one in found)


def name_of(artifact: Artifact) -> str:
    """The name of a task or published model, or the arm; "" if there is none."""
    return str(artifact.details.get("name") or artifact.details.get("arm") or "")


def _corpus(corpus: Artifact, subsets: Sequence[Artifact]) -> dict[str, Any]:
    """The sources of a corpus, with the passages that each subset has of them; the largest first."""
    whole, *taken = count_sources(corpus, subsets)
    rows = [
        {"source": name, LICENSE: licence, "passages": count, "subsets": [own[name, licence] for own in taken]}
        for (name, licence), count in sorted(whole.items(), key=lambda item: (-item[1], item[0]))
    ]
    named = [
        {"key": one.manifest.key, "arm": one.details["arm"], "passages": one.details["passages"]} for one in subsets
    ]
    return {"key": corpus.manifest.key, "passages": whole.total(), "subsets": named, "sources": rows}


def count_sources(corpus: Artifact, subsets: Sequence[Artifact]) -> list[Counts]:
    """Count the passages of each source and licence ("" if it is unknown), of a corpus, then of subsets of it."""
    named = ["source", *([LICENSE] if "license_field" in corpus.manifest.settings else [])]
    docs = [np.concatenate([[], *(part["doc"].to_numpy() for part in passages(one, ["doc"]))]) for one in subsets]
    whole, start = [Counts() for _ in (corpus, *subsets)], 0
    for batch in passages(corpus, named):
        inside = [own[slice(*np.searchsorted(own, [start, start + len(batch)]))] - start for own in docs]
        parts = [batch, *(batch.take(pa.array(rows.astype(np.int64))) for rows in inside)]
        for counts, part in zip(whole, parts, strict=True):
            grouped = pa.Table.from_batches([part]).group_by(named).aggregate([([], "count_all")])
            counts.update({(row["source"], row.get(LICENSE, "")): row["count_all"] for row in grouped.to_pylist()})
        start += len(batch)
    return whole


def _files(artifact: Artifact) -> Iterator[dict[str, str]]:
    """The raw files that a step read, with the digest of each: a sha256, or address and commit of a Hub data set."""
    settings = artifact.manifest.settings
    files = settings.get("files", [])
    for *split, name, digest in [
        *(files.items() if isinstance(files, dict) else files),
        *settings.get("unlabelled", []),
    ]:
        yield {"of": artifact.folder_name, "split": "".join(split), "name": name, "digest": digest}
