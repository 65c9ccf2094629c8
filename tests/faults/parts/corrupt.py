"""Damaged files: found before they are used, in artifacts and snapshots; and disks that are full at every page."""

import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.faults import damage, full_disk, watched
from tests.faults.chain import MAIN, SAVE_STEPS, Chain
from tests.faults.parts.kill import MIDWAY, killed_midway
from tests.faults.row import Row
from tests.faults.tally import tally

FLIPS, LENGTHS, EACH = 64, 16, 8
READERS = {  # by step: one that reads what it made
    "load-corpus": "index",
    "load-task": "retrieve",
    "index": "retrieve",
    "retrieve": "export",
    "export": "tokenize",
    "tokenizer": "tokenize",
    "tokenize": "train",
    "train": "finetune",
    "finetune": "evaluate",
    "evaluate": "report",
}
Damage = Callable[[Path, random.Random], str]
OTHERS: dict[str, Damage] = {
    "missing file": damage.remove,
    "two files swapped": damage.swap,
    "foreign file": damage.add,
    "manifest of another artifact": damage.take_anothers,
    "stale manifest": damage.age,
}
DISK_STRIDES = {"report": 8, "train": 4, "finetune": 4}


def rows(seconds: int, seed: int) -> Iterator[Row]:
    """All of it."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain(Path(folder, "tiny"), MAIN, "tiny")
        for name in READERS:
            yield tally(f"bit flip, result: {name}", in_artifacts(chain, [name] * FLIPS, damage.flip, chance))
        each = [name for name in READERS for _ in range(LENGTHS)]
        yield tally("truncated file, result of each step", in_artifacts(chain, each, damage.truncate, chance))
        for what, harm in OTHERS.items():
            each = [name for name in READERS for _ in range(EACH)]
            yield tally(f"{what}, result of each step", in_artifacts(chain, each, harm, chance))
        for name in ("train", "finetune"):
            yield tally(f"bit flip, snapshot: {name}", in_snapshots(chain, name, FLIPS, damage.flip, chance))
            yield tally(
                f"truncated file, snapshot: {name}", in_snapshots(chain, name, LENGTHS, damage.truncate, chance)
            )
            for what, harm in OTHERS.items():
                yield tally(f"{what}, snapshot: {name}", in_snapshots(chain, name, EACH, harm, chance))
    if full_disk.possible():
        yield from full_disk.rows({name: DISK_STRIDES.get(name, 1) for name in MAIN} | {full_disk.IN_PARTS: 40})
    else:
        print("no small file system can be mounted here: full disks were not tried", file=sys.stderr)


def in_artifacts(chain: Chain, names: Sequence[str], harm: Damage, chance: random.Random) -> Iterator[str]:
    """A step reads what the step named left, damaged: it refuses, or it made no use of that file and says so."""
    for name in names:
        reader = READERS[name]
        root = chain.root(reader, shutil.copy)
        uri = f"{root}/{chain.made[name].place}"
        did = harm(Path(uri), chance)
        ended = chain.run(reader, root)
        published = (root / chain.made[reader].place / "manifest.json").exists()
        if ended.code == 2:
            said = ended.sentence.startswith("tlm: ") and chain.made[name].place in ended.sentence
            wrong = "" if said and not published and "Traceback" not in ended.err else ended.err[-600:]
        else:
            told = ended.code == 0 and f"{uri}/run.json is damaged" in ended.err
            wrong = "" if told else chain.wrong(reader, root, ended)
        yield f"{name}, {did}: {wrong}" if wrong else ""
        chain.drop(root)


def in_snapshots(chain: Chain, name: str, count: int, harm: Damage, chance: random.Random) -> Iterator[str]:
    """The newest snapshot of a run that was killed is damaged: it goes on from the one before, and says so."""
    begin = killed_midway(chain, name)
    for _ in range(count):
        root, log = chain.root(name), chain.fresh()
        shutil.copytree(begin / "progress", root / "progress")
        newest = max(root.glob("progress/*/step-*"))
        did = harm(newest, chance)
        ended = chain.run(name, root, watched.watcher(name, log))
        wrong = chain.wrong(name, root, ended)
        ((first, *_),) = watched.processes(log) or [[-1]]
        loudly = f"warning: snapshot {newest.name} is skipped" in ended.err
        if not wrong and (first, loudly) not in ((SAVE_STEPS, True), (MIDWAY // SAVE_STEPS * SAVE_STEPS, False)):
            wrong = f"began at step {first}, loudly: {loudly}"
        yield f"{name}, {did}: {wrong}" if wrong else ""
        chain.drop(root, log)
    chain.drop(begin)
