"""A case of the table of bad input: what is given, what is commanded, what is expected; and how it is run."""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tlm.artifacts.artifact import Artifact
from tlm.cli import main
from tlm.data.passages import passages

Content = bytes | str | Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """Commands run one after the other in a folder with `given`; ``{0}`` in one is the URI that the first printed.

    `expected` is the sentence of the last command, which is refused with exit code 2; or, where it succeeds, some of
    its counts. Then `texts` are those of its passages or training examples, `hits` the documents found, by query.
    `says` is a part of what the last command said meanwhile. `nobody`: as a user who may read only what all may.
    """

    commands: Sequence[str]
    expected: str | Mapping[str, Any]
    given: Mapping[str, Content] = field(default_factory=dict)
    texts: Sequence[str] | None = None
    hits: Sequence[Sequence[int]] | None = None
    says: str = ""
    meanwhile: Callable[[], None] | None = None
    nobody: bool = False

    def put(self, folder: Path) -> None:
        """Make the files; a function makes its file itself."""
        for name, content in self.given.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)

    def arguments(self, number: int, uris: Sequence[str]) -> list[str]:
        """Those of a command."""
        return [part.format(*uris) for part in shlex.split(self.commands[number])]


def tlm(arguments: Sequence[str], capture: Any) -> tuple[int, str, str]:
    """The command line's own entry: exit code, stdout, stderr."""
    before, argv = signal.getsignal(signal.SIGTERM), sys.argv
    sys.argv = ["tlm", *arguments]
    try:
        main.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = argv
        signal.signal(signal.SIGTERM, before)
    return code, *capture.readouterr()


@contextmanager
def running(work: Callable[[], None] | None) -> Iterator[None]:
    """`work` in a thread, if there is any."""
    thread = threading.Thread(target=work or (lambda: None))
    thread.start()
    yield
    thread.join()


@contextmanager
def nobody(wanted: bool) -> Iterator[None]:
    """Without the rights of root, for whom nothing is unreadable."""
    root = wanted and os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def texts_of(artifact: Artifact) -> list[str]:
    """Texts of a corpus' passages or of a task's training examples."""
    if artifact.manifest.kind == "task":
        rows = pq.read_table(artifact.path("examples.parquet")).to_pylist()
        return [row["text"] for row in rows if row["split"] == "train"]
    return [text for batch in passages(artifact) for text in batch.column("text").to_pylist()]


def hits_of(artifact: Artifact) -> list[list[int]]:
    """Documents by query, best first."""
    hits = pq.read_table(artifact.path("hits.parquet")).to_pylist()
    queries = pq.read_table(artifact.path("queries.parquet"))["query"].to_pylist()
    return [[hit["doc"] for hit in hits if hit["query"] == query] for query in queries]
