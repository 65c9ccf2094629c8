"""A corpus that is loaded in parts, killed at random times."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ON_THE_WAY = ("corpus-part", "corpus-bucket", "corpus-shards")
FILES, LINES = 3, 9000  # of 2 MB each, cut into two
SCRIPT = """
import os, sys
os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # so that what is made is counted in this process
from tlm.data import corpus
from tlm.data.parts import dedup, shards, stage
made = [0]
for module in (stage, dedup, shards):
    def counted(*arguments, produce=module.produce):
        made[0] += 1
        return produce(*arguments)
    module.produce = counted
corpus.part_size = lambda files, least: 1 << 20
uri = corpus.load_corpus([sys.argv[1]], root=sys.argv[2])
print(made[0], corpus.Artifact.open(uri).content)
"""


def killed_in_parts(folder: Path, count: int, chance: random.Random) -> Iterator[str]:
    """Killed once, then let finish: the same corpus, no finished part made again, and nothing left of them."""
    texts = folder / "texts"
    texts.mkdir(parents=True)
    for number in range(FILES):
        lines = (json.dumps({"text": f"text {line % 7000} of {number // 2} " + "word " * 40}) for line in range(LINES))
        (texts / f"{number}.jsonl").write_text("\n".join(lines))
    began = time.monotonic()
    total, content = _loaded(texts, folder / "calm")
    seconds = time.monotonic() - began
    for number in range(count):
        root = folder / f"trial-{number}"
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(texts), str(root)], stderr=subprocess.DEVNULL)
        time.sleep(seconds * (number + chance.random()) / count)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:  # it was quicker this time
            shutil.rmtree(root)
            continue
        finished = [path for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/manifest.json")]
        published = any(root.glob("corpus/*/manifest.json"))
        made, again = _loaded(texts, root)
        left = [path for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/manifest.json")]
        expected = 0 if published else total - len(finished)
        right = (made, again, left) == (expected, content, [])
        yield "" if right else f"{made} parts were made, not {expected}; content {again}, not {content}; {left} left"
        shutil.rmtree(root)


def _loaded(texts: Path, root: Path) -> tuple[int, str]:
    """How many results on the way a process made, and the content of the corpus."""
    command = [sys.executable, "-c", SCRIPT, str(texts), str(root)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(said[0]), said[1]
