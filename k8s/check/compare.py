"""Compare two states printed by k8s.check.state. Prints a line for each difference and exits with 1 if there is any.

``python -m k8s.check.compare data EXPECTED ACTUAL``: both runs have the same data, up to what training reads.
``python -m k8s.check.compare nothing-written BEFORE AFTER``: no file was added, removed or rewritten.
"""

import json
import sys
from pathlib import Path
from typing import Any

# Without the results of training: they depend on the machine and the number of threads.
DATA = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens")

State = dict[str, dict[str, Any]]


def data(expected: State, actual: State) -> list[str]:
    """Differences in the content of data artifacts, and artifacts that only one state has."""
    first, second = _data(expected), _data(actual)
    missing = [f"there is no {kind}" for kind in DATA if kind not in map(_kind, second)]
    return missing + _differences(first, second)


def nothing_written(before: State, after: State) -> list[str]:
    """Files that were added, removed or changed."""
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
