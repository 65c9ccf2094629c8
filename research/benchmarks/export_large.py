"""Exporting a subset as large as the paper's at its large scale: memory, and how cost grows with the passages."""

import json
import tempfile
from pathlib import Path

import numpy as np

from research.benchmarks.data_steps import exported
from research.benchmarks.measure import CPU, MEMORY, child, compare
from research.benchmarks.passages import corpus, queries, told
from research.benchmarks.row import Result, Row, growth, limit
from research.benchmarks.training_data import folder

SIZES, QUICK = (900_000, 1_800_000, 3_600_000), (1000, 2000, 4000)
TOP_K = 50
MOST_GIB = 3.0


def run(quick: bool) -> list[Result]:
    """Each size in a process of its own."""
    sizes = QUICK if quick else SIZES
    with tempfile.TemporaryDirectory(dir=folder()) as root:
        sides = {str(size): child(exported, found_all(size, quick, root), root, size) for size in sizes}
        measured = compare(sides, 1)
    middle = {size: measured.spread(str(size), CPU).middle for size in sizes}
    peak = measured.spread(str(sizes[-1]), MEMORY).middle * 1e6 / 2**30
    axes = ("passages", "CPU seconds")
    return [
        limit(f"{sizes[-1]:,} passages: peak memory", peak, "GiB", MOST_GIB, told(quick)),
        growth("passages exported: CPU seconds", [(float(size), seconds) for size, seconds in middle.items()], axes),
    ]


def found_all(size: int, quick: bool, root: str) -> str:
    """Hits that have each passage of a corpus once, as a search with a fiftieth as many queries might."""
    from tlm.artifacts.artifact import Artifact
    from tlm.artifacts.produce import Draft, Recipe, produce
    from tlm.data.corpus.load import load_corpus
    from tlm.data.tasks.task import load_task
    from tlm.retrieval.retrieve import write_hits

    general = Artifact.open(load_corpus([str(corpus(size, quick))], root=root))
    task = Artifact.open(load_task(asking(Path(root), quick), root=root))
    docs = np.random.default_rng(0).permutation(general.details["passages"])
    scores = np.linspace(30, 10, TOP_K, dtype=np.float32)

    def index(draft: Draft) -> None:
        draft.details = {"engine": "embedded", "documents": len(docs)}

    def hits(draft: Draft) -> None:
        answers = (docs[first : first + TOP_K] for first in range(0, len(docs), TOP_K))
        rows = ((number, found, scores[: len(found)]) for number, found in enumerate(answers))
        draft.rows["hits.parquet"] = write_hits(draft.folder / "hits.parquet", rows)
        draft.details = {"arm": "bm25", "top_k": TOP_K, "like": None}

    made = Artifact.open(produce(Recipe("index", "benchmark", 1, {}, {"corpus": general}), root, index))
    return produce(Recipe("hits", "benchmark", 1, {}, {"index": made, "task": task}), root, hits)


def asking(place: Path, quick: bool) -> str:
    """A task whose training, dev and test texts are the queries; those of dev and test are looked for."""
    target = place / "asking"
    target.mkdir(exist_ok=True)
    texts = list(dict.fromkeys(queries("full", quick)))
    for number, split in enumerate(("train", "dev", "test")):
        rows = [{"text": text, "label": "ab"[row % 2]} for row, text in enumerate(texts[number::3])]
        (target / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(target)


ROW = Row(
    name="export_large",
    stage="export as many passages as the paper's large scale",
    against="",
    target=f"3.6 million passages within {MOST_GIB:g} GiB",
    what="Hits that have every passage of a corpus, through all filters of export, with dev and test texts of a real "
    "task; each size in its own process.",
    run=run,
    packages=("pyarrow", "numpy"),
)
