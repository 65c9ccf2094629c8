"""Loading a corpus in parts: what it costs beside loading it in one, by one process and by one for each core."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from joblib import cpu_count

from benchmarks.measure import CPU, WALL, Cost, Stopwatch, child, compare
from benchmarks.passages import corpus, texts, told
from benchmarks.row import Result, Row, against, limit
from benchmarks.training_data import folder

PASSAGES, QUICK = 640_000, 4000
FILES = 8  # of 40 MB: a part is one of them
MOST_OVERHEAD, MOST_MB = 1.15, 300.0
CORES = "LOKY_MAX_CPU_COUNT"


def run(quick: bool) -> list[Result]:
    """Each way in a process of its own, which starts the others."""
    cores, passages = cpu_count(), corpus(QUICK if quick else PASSAGES, quick)
    with tempfile.TemporaryDirectory(dir=folder()) as place:
        for name, count in (("one", 1), ("parts", FILES)):
            split(list(texts(passages)), Path(place) / name, count)
        sides = {
            "in one": child(load, f"{place}/one", f"{place}/store", 1),
            "in parts": child(load, f"{place}/parts", f"{place}/store", 1),
            "on all cores": child(load, f"{place}/parts", f"{place}/store", cores),
        }
        measured = compare(sides, 1 if quick else 5)
    overhead = measured.spread("in parts", CPU).middle / measured.spread("in one", CPU).middle
    peak = max(cost.memory for cost in measured.costs["in parts"]) / 1e6
    faster = f"At most {cores} × with {cores} cores, less what starting processes takes."
    wanted = 1.6 if cores == 2 else None
    return [
        limit("in 8 parts by one process, over one part: CPU seconds", overhead, "", MOST_OVERHEAD, told(quick)),
        against("in 8 parts on all cores: time", measured, "in one", WALL, ours="on all cores", at_least=wanted,
                note=faster),
        limit("a process: peak memory", peak, "MB", MOST_MB),
    ]  # fmt: skip


def split(passages: list[str], target: Path, count: int) -> None:
    """Write the passages to `count` files of JSON lines."""
    target.mkdir()
    for number in range(count):
        own = passages[number * len(passages) // count : (number + 1) * len(passages) // count]
        (target / f"{number}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in own))


def load(source: str, root: str, processes: int) -> Cost:
    """The step itself, into an empty store."""
    from joblib.externals.loky import get_reusable_executor

    from tlm.data.corpus import load_corpus

    shutil.rmtree(root, ignore_errors=True)
    os.environ[CORES] = str(processes)
    with Stopwatch() as watch:
        load_corpus([source], root=root)
        if processes > 1:
            get_reusable_executor().shutdown(wait=True)  # the CPU time of children counts once they have ended
    return watch.cost()


ROW = Row(
    name="load_parts",
    stage="load in parts",
    against="one part",
    target=f"at most {MOST_OVERHEAD - 1:.0%} more CPU by one process; 1.6 times as fast with two",
    what="640,000 passages (320 MB) as JSON lines, in one file, which is one part, and in eight files, which are eight "
    "parts: loaded by one process, and by one for each core. Each part is read, its digests are compared with those of "
    "the others, and it is written.",
    run=run,
    packages=("pyarrow", "joblib"),
)
