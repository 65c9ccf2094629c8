"""Loading a corpus in parts: what it costs beside loading it in one, by one process and by one for each core."""

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from joblib import cpu_count

from research.benchmarks.measure import CPU, WALL, Cost, Stopwatch, child, compare
from research.benchmarks.passages import corpus, texts, told
from research.benchmarks.row import Result, Row, against, limit, not_measured
from research.benchmarks.training_data import folder

SIZES, QUICK = (160_000, 640_000, 1_280_000), (1000, 4000, 8000)  # passages
MANY, MOST, FASTER = 16, 10_240_000, 12.0  # cores; passages that are 64 parts; how many times as fast
MOST_OVERHEAD, MOST_MB, MOST_SCRATCH_GIB, FLAT = 1.15, 300.0, 2.0, 1.2
CORES = "LOKY_MAX_CPU_COUNT"
LOOK_SECONDS = 0.1


def run(quick: bool) -> list[Result]:
    """Each way in a process of its own, which starts the others."""
    cores, sizes = cpu_count(), QUICK if quick else SIZES
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        small, middle, large = (as_lines(size, Path(place), quick) for size in sizes)
        store = f"{place}/store"
        sides = {
            "in one": child(load, large, store, 1, 1 << 30),
            "in parts": child(load, large, store, 1, 0),
            "on all cores": child(load, large, store, cores, 0),
        }
        measured = compare(sides, 1 if quick else 3)
        others = compare({name: child(load, name, store, 1, 0) for name in (small, middle)}, 1)
        many = on_many_cores(place, store, quick)
    overhead = measured.spread("in parts", CPU).middle / measured.spread("in one", CPU).middle
    costs = [*others.costs[small], *others.costs[middle], *measured.costs["in parts"]]
    memory, scratch = [cost.memory / 1e6 for cost in costs], [cost.work / 2**30 for cost in costs]
    faster = f"At most {cores} × with {cores} cores, less what starting processes takes."
    wanted = 1.6 if cores == 2 else None
    text = f"{sizes[-1]:,} passages"
    return [
        limit(f"{text} in parts by one process, over one part: CPU seconds", overhead, "", MOST_OVERHEAD, told(quick)),
        against(f"{text} in parts on all cores: time", measured, "in one", WALL, ours="on all cores", at_least=wanted,
                note=faster),
        limit("a process: peak memory", max(memory), "MB", MOST_MB),
        limit("a process: peak scratch", max(scratch), "GiB", MOST_SCRATCH_GIB),
        limit(f"a process: peak memory, largest of {sizes[0]:,}, {sizes[1]:,} and {sizes[2]:,} passages over smallest",
              max(memory) / min(memory), "", FLAT),
        many,
    ]  # fmt: skip


def on_many_cores(place: str, store: str, quick: bool) -> Result:
    """16 processes beside one, on so much text that each has four parts."""
    label = f"on all cores of a machine with {MANY}: time"
    if cpu_count() < MANY:
        return not_measured(label, "this machine has fewer", f"≥ {FASTER:g}×", "in one")
    size = QUICK[-1] if quick else MOST
    source = as_lines(size, Path(place), quick)
    sides = {"in one": child(load, source, store, 1, 1 << 30), "on all cores": child(load, source, store, MANY, 0)}
    note = f"{size:,} passages; {MANY} processes, each with parts of 80 MB, beside one with parts of a GiB."
    measured = compare(sides, 1 if quick else 3)
    return against(label, measured, "in one", WALL, ours="on all cores", at_least=FASTER, note=note)


def as_lines(size: int, place: Path, quick: bool) -> str:
    """A file with so many passages as JSON lines."""
    path = place / f"{size}.jsonl"
    with path.open("w") as lines:
        lines.writelines(json.dumps({"text": text}) + "\n" for text in texts(corpus(size, quick)))
    return str(path)


def load(source: str, root: str, processes: int, least: int) -> Cost:
    """The step itself, into an empty store, in parts of at least so many bytes; its work is the peak of scratch."""
    from joblib.externals.loky import get_reusable_executor

    from tlm.data.corpus import load as corpus

    shutil.rmtree(root, ignore_errors=True)
    os.environ[CORES] = str(processes)
    corpus.SMALLEST = least or corpus.SMALLEST
    with scratch_watched(Path(root)) as peak, Stopwatch() as watch:
        corpus.load_corpus([source], root=root)
        if processes > 1:
            get_reusable_executor().shutdown(wait=True)  # the CPU time of children counts once they have ended
    return watch.cost(max(peak))


@contextmanager
def scratch_watched(root: Path) -> Iterator[list[int]]:
    """The bytes of unfinished files below a store, looked at ten times a second."""
    seen, over = [0], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            with suppress(FileNotFoundError):
                seen.append(sum(path.stat().st_size for path in root.glob(".scratch/**/*") if path.is_file()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


ROW = Row(
    name="load_parts",
    stage="load in parts",
    against="one part",
    target=f"at most {MOST_OVERHEAD - 1:.0%} more CPU by one process; 1.6 times as fast with two",
    what="Passages as JSON lines in one file, loaded as one part, or cut into parts of 64 MiB: by one process, and by "
    "one for each core. Each part is read, its digests are compared with those of the others, and it is written.",
    run=run,
    packages=("pyarrow", "joblib"),
)
