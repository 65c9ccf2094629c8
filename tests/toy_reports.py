"""Reports of toy worlds, and what must hold for every page."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.toys import Row, World, make_task, words
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import signed_json
from tlm.evaluation.report.report import contents, report

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LABELS = ["blue", "green", "red"]
HOSTILE = [
    "<script>alert(1)</script> <img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) ![x](https://evil.example/a.png) <https://evil.example>",
    "`` ` </code></pre><iframe src=https://evil.example></iframe>",
    "innocent \u202egnp.exe\u202c \u2066hidden\u2069 \x1b[31mred\x00",
    "www.evil.example https://evil.example me@evil.example",
    "{{ 7 * 7 }} {% for x in y %} ${alert(1)} &lt;b&gt; \" onload='x' | a | b |",
    "# heading\n\n- list\n\n<b>bold</b>\n\n| table |\n|---|",
]


def toy_world(
    root: Path, labels: list[str] | None = LABELS, texts: list[str] | None = None, copies: Sequence[int] = ()
) -> World:
    """60 examples, 60 passages; `texts` are mixed into both; train is said to have the texts of `copies` too."""
    rows: list[Row] = []
    for index, text in enumerate([*(texts or []), *words(60, 0)][:60]):
        gold = labels[index % len(labels)] if labels else index / 7
        rows.append((text, None, gold, "train" if index < 30 else "dev" if index < 40 else "test"))
    metric = "macro_f1" if labels else "pearson"
    passages = [*(texts or []), *(f"passage {number}: {text}" for number, text in enumerate(words(60, 1)))]
    return World(root, make_task(root, rows, metric, labels, copies=copies), passages)


def pages(uri: str) -> dict[str, str]:
    """The files of a report by format."""
    found = Artifact.open(uri)
    return {form: found.path(f"report.{form}").read_text(encoding="utf-8") for form in ("html", "md", "json")}


def reported(root: Path, metrics: list[str]) -> dict[str, str]:
    return pages(report(metrics, root=str(root)))


def as_if(root: Path, kind: str = "*", **facts: Any) -> None:
    """Have the run.json of all artifacts of a kind say something else; None: say nothing."""
    for path in root.glob(f"{kind}/*/run.json"):
        told = Artifact.open(str(path.parent)).run() | facts
        path.write_bytes(signed_json({name: value for name, value in told.items() if value is not None}))


def told_of(metrics: list[str]) -> dict[str, Any]:
    """The report's contents without the pages."""
    return contents([Artifact.open(uri) for uri in metrics])


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def is_safe(html: str) -> None:
    page = Page(html)
    assert not page.tags & {"script", "iframe", "img src=x", "object", "embed", "a", "b", "link", "base", "form", "svg"}
    assert "<script" not in html.lower()
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in ("href", "srcdoc", "action", "formaction")
        if name in ("src", "srcset"):
            assert tag == {"src": "img", "srcset": "source"}[name]
            assert value.startswith("data:image/svg+xml;base64,")
        if name == "style":
            dash = r"(; --on: [0-9.]+px; --off: [0-9.]+px)?"
            assert re.fullmatch(rf"--(tone|share): (var\(--[a-z0-9-]+\)|[0-9.]+){dash}", value)
    policy = [
        value for tag, name, value in page.attributes if (tag, name) == ("meta", "content") and "default-src" in value
    ]
    assert policy == [POLICY]
    assert html.index("Content-Security-Policy") < html.index("<style>")
