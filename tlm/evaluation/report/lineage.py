"""Where metrics came from: ancestors one by one; one that is gone becomes a line in the report, not an error."""

from collections.abc import Iterable, Iterator
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.text import visible

ORDER = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens", "checkpoint", "model", "metrics")
MOST_NAMED = 4


class Lineage:
    """Walks from artifacts to their inputs, and remembers which could not be opened."""

    def __init__(self) -> None:
        self._gone: list[str] = []
        self._found: dict[tuple[str, str], Artifact | None] = {}

    def follow(self, start: Artifact | None, *names: str) -> Artifact | None:
        """The input `names[0]` of `start`, its input `names[1]` and so on; None where there is none or it is gone."""
        found = start
        for name in names:
            found = self._input(found, name) if found is not None else None
        return found

    def everything(self, starts: Iterable[Artifact]) -> list[Artifact]:
        """`starts` and all their ancestors, each once, in the order of the pipeline."""
        seen: dict[tuple[str, str], Artifact] = {}
        stack = list(starts)
        while stack:
            artifact = stack.pop()
            if seen.setdefault(_name(artifact), artifact) is artifact:
                stack += [found for name in artifact.manifest.inputs if (found := self._input(artifact, name))]
        return sorted(seen.values(), key=lambda artifact: (_place(artifact.manifest.kind), artifact.manifest.key))

    def told(self) -> str:
        """A sentence about the ancestors that could not be opened so far; "" if all could."""
        if not self._gone:
            return ""
        more = f" and {len(self._gone) - MOST_NAMED} more" if len(self._gone) > MOST_NAMED else ""
        names = ", ".join(self._gone[:MOST_NAMED])
        return f"Gone, or no longer what it was: {names}{more}. What only they could tell is left out."

    def _input(self, artifact: Artifact, name: str) -> Artifact | None:
        ref = artifact.manifest.inputs.get(name)
        if ref is None:
            return None
        if (ref.kind, ref.key) not in self._found:
            try:
                self._found[ref.kind, ref.key] = artifact.input(name)
            except InputError:
                self._found[ref.kind, ref.key] = None
                self._gone.append(f"{ref.kind} {ref.key[:12]}")
        return self._found[ref.kind, ref.key]


def lineage_rows(artifacts: list[Artifact]) -> list[dict[str, Any]]:
    """Kind, key, content, step and settings of each; of a step's later artifacts what differs from its first."""
    rows: list[dict[str, Any]] = []
    firsts: dict[tuple[str, str], dict[str, Any]] = {}
    for artifact in artifacts:
        manifest = artifact.manifest
        settings = dict(flat(manifest.settings))
        first = firsts.setdefault((manifest.kind, manifest.step), settings)
        shown = (
            settings
            if first is settings
            else {name: settings[name] for name in settings if first.get(name) != settings[name]}
        )
        rows.append(
            {
                "kind": manifest.kind,
                "key": manifest.key,
                "content": manifest.content,
                "step": f"{manifest.step} v{manifest.version}",
                "settings": {name: plain(value) for name, value in shown.items()},
                "like_first": first is not settings,
                "inputs": [f"{ref.kind}/{ref.key[:12]}" for ref in manifest.inputs.values()],
            }
        )
    return rows


def flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as dotted names with their values."""
    for name, value in sorted(settings.items()):
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def plain(value: Any) -> str:
    """A setting's value for people, of bounded length."""
    return visible(", ".join(map(str, value)) if isinstance(value, list) else str(value), 80)


def _name(artifact: Artifact) -> tuple[str, str]:
    return artifact.manifest.kind, artifact.manifest.key


def _place(kind: str) -> int:
    return ORDER.index(kind) if kind in ORDER else len(ORDER)
