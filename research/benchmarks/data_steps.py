"""Loading a corpus and exporting a subset, at 1×, 4× and 16× the corpus: lines a second, memory, how cost grows."""

import hashlib
import json
import shutil
import tempfile
import unicodedata
from pathlib import Path

from research.benchmarks.measure import CPU, MEMORY, Cost, Measured, Stopwatch, child, compare, per_cpu_second
from research.benchmarks.passages import lines_file, queries, told
from research.benchmarks.row import Result, Row, against, growth, limit
from research.benchmarks.training_data import folder
from tlm.settings.options import Layout

LINES, QUICK = 100_000, 2000
TIMES = (1, 4, 16)
FLAT, MOST_GIB = 1.2, 1.0
FLOOR = "decompressing, parsing and hashing alone"


def run(quick: bool) -> list[Result]:
    """Each size in processes of its own; the artifacts of one round are the next one's garbage."""
    files = {times: lines_file(times * (QUICK if quick else LINES), quick) for times in TIMES}
    repeats = 1 if quick else 5
    results = []
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        loads = {f"ours {times}": child(load, str(file), f"{place}/load") for times, file in files.items()}
        floors = {f"floor {times}": child(floor, str(file)) for times, file in files.items()}
        measured = compare(loads | floors, repeats)
        for times in TIMES:
            lines = f"{times * (QUICK if quick else LINES):,} lines"
            costs = Measured({"ours": measured.costs[f"ours {times}"], FLOOR: measured.costs[f"floor {times}"]})
            results.append(against(f"load and dedup, {lines}", costs, FLOOR, per_cpu_second("lines"), note=told(quick)))
        results += grown("load and dedup", {times: measured.costs[f"ours {times}"] for times in TIMES})
        hits = {times: searched(file, f"{place}/export", quick) for times, file in files.items()}
        exports = compare({str(times): child(exported, *found) for times, found in hits.items()}, repeats)
        results += grown("export", {times: exports.costs[str(times)] for times in TIMES})
    return results


def grown(step: str, costs: dict[int, list[Cost]]) -> list[Result]:
    """The growth of a step's seconds and memory with the corpus."""
    measured = Measured({str(times): found for times, found in costs.items()})
    seconds = [(float(times), measured.spread(str(times), CPU).middle) for times in costs]
    peaks = [measured.spread(str(times), MEMORY).middle * 1e6 for times in costs]
    speed = ", ".join(
        f"{measured.spread(str(times), per_cpu_second('lines')).middle:,.0f} at {times}×" for times in costs
    )
    return [
        growth(f"{step}: seconds", seconds, ("times the corpus", "CPU seconds"), note=f"Lines a CPU second: {speed}."),
        limit(f"{step}: peak memory, largest over smallest corpus", peaks[-1] / peaks[0], "", FLAT),
        limit(f"{step}: peak memory, {max(costs)}× the corpus", max(peaks) / 2**30, "GiB", MOST_GIB),
    ]


def load(file: str, root: str) -> Cost:
    """The step itself, into an empty store."""
    from tlm.artifacts.artifact import Artifact
    from tlm.data.corpus.load import load_corpus

    shutil.rmtree(root, ignore_errors=True)
    with Stopwatch() as watch:
        corpus = load_corpus([file], layout=Layout(source_field="source"), root=root)
    return watch.cost(Artifact.open(corpus).counts["read"])


def floor(file: str) -> Cost:
    """The work of any loader: decompress, parse, normalise to NFC, and hash each text."""
    from tlm.data.reading import zstd

    seen, lines = set(), 0
    with Stopwatch() as watch, zstd.ZstdFile(file) as packed:
        for line in packed:
            text = unicodedata.normalize("NFC", json.loads(line)["text"])
            seen.add(hashlib.blake2b(text.encode(), digest_size=16).digest())
            lines += 1
    return watch.cost(lines)


def searched(file: Path, root: str, quick: bool) -> tuple[str, str, int]:
    """Hits of the task's whole texts (K = 50) in the corpus, the task, and the lines of the corpus."""
    from tlm.artifacts.artifact import Artifact
    from tlm.data.corpus.load import load_corpus
    from tlm.data.tasks.task import load_task
    from tlm.retrieval.retrieve import retrieve
    from tlm.retrieval.search.index import build_index

    asking = Path(root).parent / "asking"
    asking.mkdir(exist_ok=True)
    for split in ("train", "dev", "test"):
        rows = [
            {
                "text": text if split == "train" else f"{split} {number}",
                "label": "ab"[number % 2],
            }  # or they would be leaks
            for number, text in enumerate(queries("full", quick))
        ]
        (asking / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    corpus = load_corpus([str(file)], layout=Layout(source_field="source"), root=root)
    task = load_task(str(asking), root=root)
    hits = retrieve(build_index(corpus, root=root), task, query="full", top_k=50, root=root)
    return hits, root, Artifact.open(corpus).counts["read"]


def exported(hits: str, root: str, lines: int) -> Cost:
    """The step itself; what an earlier round exported is removed."""
    from tlm.retrieval.subset.export import export

    for made in Path(root).glob("subset/*"):
        shutil.rmtree(made)
    with Stopwatch() as watch:
        export(hits, root=root)
    return watch.cost(lines)


ROW = Row(
    name="data_steps",
    stage="load, dedup, export",
    against=FLOOR,
    target=f"linear; memory flat within {FLAT - 1:.0%} and under {MOST_GIB:g} GiB",
    what="JSON lines, compressed with zstd, with every tenth line a duplicate; each step in its own process with "
    "one thread. Loading is compared with a bare loop that decompresses, parses, normalises and hashes each "
    "line and writes nothing: the minimum that any loader has to do. Export passes what a task's queries (K = "
    "50) found in each corpus through all of its filters.",
    run=run,
    packages=("pyarrow", "backports.zstd"),
)
