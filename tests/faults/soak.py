"""The same small run again and again in one process, each in a root of its own: ``python -m tests.faults.soak N``.

Prints a line of JSON after each: what came out (the content of its parts), and what the process holds by then.
"""

import ctypes
import gc
import io
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from tests.tiny import write_tiny
from tlm.cli import main as cli

CHAIN = (
    ("corpus", "load-corpus corpus.jsonl"),
    ("task", "load-task task"),
    ("index", "index {corpus}"),
    ("hits", "retrieve {index} {task}"),
    ("subset", "export {hits}"),
    ("random", "retrieve {index} {task} --arm random --same-size-as {subset}"),
    ("tokenizer", "tokenizer {corpus} {task} --vocab-size 300"),
    ("tokens", "tokenize {subset} {tokenizer}"),
    ("checkpoint", "train {task} --tokenizer {tokenizer} --subset {subset} --preset tiny --set train.steps=20"),
    ("model", "finetune {checkpoint} {task} --preset tiny --set finetune.epochs=1"),
    ("metrics", "evaluate {model} {task}"),
    ("baseline", "baseline {task}"),
    ("report", "report {metrics}"),
)
NOT_COMPARED = ("report",)  # it says how long things took


def main() -> None:
    """As often as the command line says; the folder for temporary files is one of its own, so that none can hide."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("tmp", "cache"):
            Path(name).mkdir()
        os.environ.update(TMPDIR=f"{folder}/tmp", TLM_CACHE=f"{folder}/cache")
        tempfile.tempdir = None
        write_tiny(Path(folder))
        for _ in range(int(sys.argv[1])):
            print(json.dumps({"contents": dict(run()), **held(Path("tmp"))}), flush=True)


def run() -> Iterator[tuple[str, str]]:
    """(step's result, its content) of one run; its root is removed."""
    uris: dict[str, str] = {}
    for name, command in CHAIN:
        answer = _tlm([*command.format(**uris).split(), "--root", "root", "--json"])
        uris[name] = answer["uri"]
        if name not in NOT_COMPARED:
            yield name, answer["content"]
    shutil.rmtree("root")


def held(temporary: Path) -> dict[str, int]:
    """Open files, threads, child processes, forgotten temporary files, resident MiB once free memory is given back."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "open files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": threading.active_count(),
        "processes": len(children),
        "temporary files": sum(1 for _ in temporary.rglob("*")),
        "memory": pages * os.sysconf("SC_PAGE_SIZE") >> 20,
    }


def _tlm(arguments: list[str]) -> dict[str, Any]:
    sys.argv, out, err = ["tlm", *arguments], io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{arguments}: {end.code}: {err.getvalue()}") from None
    answer: dict[str, Any] = json.loads(out.getvalue().splitlines()[-1])
    return answer


if __name__ == "__main__":
    main()
