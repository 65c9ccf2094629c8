"""Compare states of artifacts, as k8s.kind.state prints them; each difference is a line, the exit code is then 1.

``python -m k8s.kind.compare data EXPECTED ACTUAL``: the data of both runs are the same, up to what training reads.
``python -m k8s.kind.compare nothing-written BEFORE AFTER``: no file came, went or was written again.
"""

import json
import sys
from pathlib import Path
from typing import Any

# Not what training writes: its numbers depend on the machine and on how many threads it has.
DATA = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens")

State = dict[str, dict[str, Any]]


def data(expected: State, actual: State) -> list[str]:
    """Where the contents of artifacts that hold data differ, or are missing on one side."""
    first, second = _data(expected), _data(actual)
    missing = [f"there is no {kind}" for kind in DATA if kind not in map(_kind, second)]
    return missing + _differences(first, second)


def nothing_written(before: State, after: State) -> list[str]:
    """Which files came, went or changed."""
    return _differences(before["files"], after["files"])


def _differences(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {first.get(name, 'nothing')} → {second.get(name, 'nothing')}"
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]


def _data(state: State) -> dict[str, Any]:
    return {name: content for name, content in state["contents"].items() if _kind(name) in DATA}


def _kind(name: str) -> str:
    return name.partition("/")[0]


def main() -> int:
    """Print the differences."""
    what, *names = sys.argv[1:]
    first, second = (json.loads(Path(name).read_text(encoding="utf-8")) for name in names)
    found = {"data": data, "nothing-written": nothing_written}[what](first, second)
    print("\n".join(found) or f"{what}: as it should be")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
