"""A corpus that is loaded in parts, killed at random times, and on a full disk."""

import itertools
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ON_THE_WAY = ("corpus-part", "corpus-bucket", "corpus-shards")
FILES, LINES = 3, 9000  # of 2 MB each, cut into two
SCRIPT = """
import os, sys
os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # so that what is made is counted in this process
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import load as corpus
made = [0]
def counted(recipe, *arguments, produce=corpus.produce):
    made[0] += recipe.kind != "corpus"
    return produce(recipe, *arguments)
corpus.produce = counted
corpus.part_size = lambda files, least: 1 << 20
uri = corpus.load_corpus([sys.argv[1]], root=sys.argv[2])
print(made[0], Artifact.open(uri).content)
"""


def killed_in_parts(folder: Path, count: int, chance: random.Random) -> Iterator[str]:
    """Killed once, then let finish: the same corpus, no finished part made again, and nothing left of them."""
    texts = _written(folder / "texts")
    began = time.monotonic()
    undisturbed = _loaded(texts, folder / "calm")
    seconds = time.monotonic() - began
    for number in range(count):
        root = folder / f"trial-{number}"
        process = subprocess.Popen(_command(texts, root), stderr=subprocess.DEVNULL)
        time.sleep(seconds * (number + chance.random()) / count)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:  # it was quicker this time
            shutil.rmtree(root)
            continue
        yield _wrong_after(texts, root, *undisturbed)
        shutil.rmtree(root)


def full_in_parts(disk: Path, texts: Path, stride: int, leave: Callable[[int], None]) -> Iterator[str]:
    """The disk is full at some page, then has room again; `leave` leaves so many pages, or all (-1)."""
    undisturbed = _loaded(_written(texts), texts.with_name("calm"))
    for pages in itertools.count(0, stride):
        root = disk / "root"
        leave(pages)
        code = subprocess.run(_command(texts, root), capture_output=True, check=False).returncode
        leave(-1)
        if code == 0:
            break
        yield _wrong_after(texts, root, *undisturbed)
        shutil.rmtree(root)


def _written(texts: Path) -> Path:
    texts.mkdir(parents=True)
    for number in range(FILES):
        lines = (json.dumps({"text": f"text {line % 7000} of {number // 2} " + "word " * 40}) for line in range(LINES))
        (texts / f"{number}.jsonl").write_text("\n".join(lines))
    return texts


def _wrong_after(texts: Path, root: Path, total: int, content: str) -> str:
    """What is wrong once the step is begun again that `root` is from; "" if nothing is."""
    finished = [path for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/manifest.json")]
    expected = 0 if any(root.glob("corpus/*/manifest.json")) else total - len(finished)
    made, again = _loaded(texts, root)
    left = [path for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/manifest.json")]
    right = (made, again, left) == (expected, content, [])
    return "" if right else f"{made} parts were made, not {expected}; content {again}, not {content}; {left} left"


def _loaded(texts: Path, root: Path) -> tuple[int, str]:
    """How many results on the way a process made, and the content of the corpus."""
    said = subprocess.run(_command(texts, root), check=True, capture_output=True, text=True).stdout.split()
    return int(said[0]), said[1]


def _command(texts: Path, root: Path) -> list[str]:
    return [sys.executable, "-c", SCRIPT, str(texts), str(root)]
