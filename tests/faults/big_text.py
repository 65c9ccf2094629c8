"""A corpus and a task as large as one likes: pieces of real prose, again and again, salted so that no two are alike."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from demo.docstrings import docstrings
from demo.packages import wheels

WORDS = 64
QUERY_WORDS = 24
SALT = 8  # about one word in so many is replaced by one drawn from all


class Prose:
    """Docstrings of the demo's packages, in pieces."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        texts = [text.split() for path in wheels() for text in docstrings(ZipFile(path))]
        self.pieces = [text[i : i + WORDS] for text in texts for i in range(0, len(text), WORDS)]
        self.words = [word for piece in self.pieces for word in piece]

    def text(self, number: int, words: int = WORDS) -> str:
        """Piece `number`, counted round and round, salted."""
        piece = self.pieces[number % len(self.pieces)][:words]
        for _ in range(1 + len(piece) // SALT):
            piece[self.rng.randrange(len(piece))] = self.words[self.rng.randrange(len(self.words))]
        return f"{' '.join(piece)} {number:x}"


def write(folder: Path, passages: int, examples: int, seed: int) -> None:
    """``corpus.jsonl.gz`` and ``task/{train,dev,test}.jsonl`` with so many examples to train on."""
    prose = Prose(seed)
    (folder / "task").mkdir(parents=True)
    with gzip.open(folder / "corpus.jsonl.gz", "wt", compresslevel=1, encoding="utf-8") as file:
        file.writelines(_lines({"text": prose.text(number)} for number in range(passages)))
    for split, count in (("train", examples), ("dev", 200), ("test", 200)):
        rows = ({"text": _query(prose), "label": "ab"[number % 2]} for number in range(count))
        (folder / "task" / f"{split}.jsonl").write_text("".join(_lines(rows)), encoding="utf-8")


def _query(prose: Prose) -> str:
    return prose.text(prose.rng.randrange(len(prose.pieces)), QUERY_WORDS)


def _lines(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(row) + "\n" for row in rows)
