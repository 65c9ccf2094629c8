"""The artifacts that metrics were made from; one that is gone becomes a line in the report, not an error."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.evaluation.pages.blocks import Block, Column, Details, Heading, Quote, Row, Span, Table, Text
from tlm.evaluation.pages.text import visible

ORDER = ("corpus", "task", "index", "hits", "subset", "tokenizer", "tokens", "checkpoint", "model", "metrics")
MOST_NAMED = 4


class Lineage:
    """Find the inputs of artifacts, and remember which could not be opened."""

    def __init__(self) -> None:
        self._gone: list[str] = []
        self._found: dict[tuple[str, str], Artifact | None] = {}

    def follow(self, start: Artifact | None, *names: str) -> Artifact | None:
        """The input `names[0]` of `start`, that one's input `names[1]` and so on; None if one is missing or gone."""
        found = start
        for name in names:
            found = self._input(found, name) if found is not None else None
        return found

    def everything(self, starts: Iterable[Artifact]) -> list[Artifact]:
        """`starts` and all that they were made from, each once, in the order of the pipeline."""
        seen: dict[str, Artifact] = {}
        stack = list(starts)
        while stack:
            artifact = stack.pop()
            if seen.setdefault(artifact.folder_name, artifact) is artifact:
                stack += [found for name in artifact.manifest.inputs if (found := self._input(artifact, name))]
        return sorted(seen.values(), key=_pipeline_order)

    def told(self) -> str:
        """A sentence about the artifacts that could not be opened so far; "" if all could."""
        if not self._gone:
            return ""
        more = f" and {len(self._gone) - MOST_NAMED} more" if len(self._gone) > MOST_NAMED else ""
        names = ", ".join(self._gone[:MOST_NAMED])
        return f"Deleted or changed: {names}{more}. What only they record is missing here."

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
    """Kind, key, content, step and settings of each artifact.

    Of the settings of a step's later artifacts, only what differs from its first one.
    """
    rows: list[dict[str, Any]] = []
    firsts: dict[tuple[str, str], dict[str, Any]] = {}
    for artifact in artifacts:
        manifest = artifact.manifest
        settings = dict(flat(manifest.settings))
        first = firsts.setdefault((manifest.kind, manifest.step), settings)
        rows.append(
            {
                "kind": manifest.kind,
                "key": manifest.key,
                "content": manifest.content,
                "step": f"{manifest.step} v{manifest.version}",
                "settings": {
                    name: plain(value)
                    for name, value in settings.items()
                    if first is settings or first.get(name) != value
                },
                "like_first": first is not settings,
                "inputs": [f"{ref.kind}/{ref.key[:12]}" for ref in manifest.inputs.values()],
            }
        )
    return rows


def flat(values: dict[str, Any], separator: str = ".", prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested settings or counts: ``rejected: {"empty": 3}`` becomes ``rejected.empty``."""
    for name, value in sorted(values.items()):
        if isinstance(value, dict):
            yield from flat(value, separator, f"{prefix}{name}{separator}")
        else:
            yield f"{prefix}{name}", value


def plain(value: Any) -> str:
    """A setting's value as short text."""
    return visible(", ".join(map(str, value)) if isinstance(value, list) else str(value), 80)


def _pipeline_order(artifact: Artifact) -> tuple[int, str]:
    kind = artifact.manifest.kind
    return ORDER.index(kind) if kind in ORDER else len(ORDER), artifact.manifest.key


def section(rows: Sequence[dict[str, Any]]) -> Iterator[Block]:
    """The artifacts behind the report."""
    columns = [Column(name, "left") for name in ("Artifact", "content", "step")]
    table = Table([*columns, Column("settings", "words")], [_cells(row) for row in rows])
    yield Heading("Lineage")
    yield Details(f"The {len(rows)} artifacts behind this page", (table,))
    yield Text(
        "Artifacts with equal content have equal files. Texts on this page are shortened and shown as plain text; "
        "nothing in them is executed.",
        "small",
    )


def _cells(row: dict[str, Any]) -> Row:
    named = ", ".join(f"{name}={value}" for name, value in row["settings"].items())
    alike = ("same as the first" + ", except " * bool(named)) * row["like_first"]
    settings = (alike, Quote.of(named)) if named else alike
    key, content = (Span(text, "code") for text in (f"{row['kind']}/{row['key'][:12]}", row["content"][:12]))
    return key, content, row["step"], settings
