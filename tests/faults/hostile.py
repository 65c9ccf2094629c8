"""Text as a stranger may write it, in every place of a page that takes text; and pages made of it."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from research.attention.step import attention
from research.multitask.report import report_multitask
from research.retrieval.step import retrieval_study
from tests.faults.browser import HOST, RAN
from tests.toy_reports import HOSTILE, Page, is_safe
from tests.toys import Row, World, make_task, random_model, save, words
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS
from tlm.evaluation.report import kfp
from tlm.evaluation.report.preview import preview
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline

ACTIVE = (
    f"<script>{RAN}</script>",
    f'<img src="http://{HOST}/img" onerror="{RAN}">',
    f"<svg onload=\"{RAN}\"><script>{RAN}</script></svg>",
    f"<iframe src=\"javascript:{RAN}\" srcdoc=\"<script>{RAN}</script>\"></iframe>",
    f'<link rel=stylesheet href="http://{HOST}/css"><style>@import url(http://{HOST}/import);</style>',
    f'<object data="http://{HOST}/object"></object><embed src="http://{HOST}/embed">',
    f'<video src="http://{HOST}/v" onerror="{RAN}" autoplay></video><audio src="https://{HOST}/a"></audio>',
    f'<details open ontoggle="{RAN}"><summary>x</summary></details>',
    f'<input autofocus onfocus="{RAN}"><body onload="{RAN}">',
    f'<a href="javascript:{RAN}" ping="http://{HOST}/ping">x</a><base href="http://{HOST}/">',
    f'<form action="http://{HOST}/form"><button formaction="javascript:{RAN}">x</button></form>',
    f'<p style="background:url(http://{HOST}/style)">x</p><table background="http://{HOST}/table"></table>',
    f'" onmouseover="{RAN}" style="background:url(http://{HOST}/attribute)" x="',
    f"</title></style></textarea><script>{RAN}</script>",
    f"[x](javascript:{RAN}) ![x](http://{HOST}/md) <http://{HOST}> [y]: http://{HOST}/ref",
    f"{{{{ 7 * 7 }}}} {{% import 'os' %}} ${{{RAN}}} &lt;script&gt; &#60;script&#62; %3Cscript%3E",
    f"\u202e</span><script>{RAN}</script>\u202c \u2066\u200f\ufeff \x1b]8;;http://{HOST}\x1b\\x\x1b]8;;\x1b\\ \x9b31m",
    f"=HYPERLINK(\"http://{HOST}\",\"x\")", "+cmd|' /C calc'!A0", f"@SUM(1)\t=WEBSERVICE(\"http://{HOST}\")", "-2+3;=1",
)  # fmt: skip


def texts(count: int, seed: int) -> list[str]:
    """`count` texts of the pieces above, as they are and in pieces of them, between words."""
    chance = random.Random(seed)
    found = [*ACTIVE, *HOSTILE]
    while len(found) < count:
        one, other = chance.sample(ACTIVE, 2)
        found.append(f"alpha {one[: chance.randrange(1, len(one))]}{other} beta {chance.choice(words(1, len(found)))}")
    return found[:count]


def pages(root: Path, seed: int, encoder: bool = False) -> Iterator[tuple[str, str]]:
    """(name, text) of every page that is made for people, in HTML and Markdown, of hostile texts and names."""
    rotated = ACTIVE[seed % len(ACTIVE) :] + ACTIVE[: seed % len(ACTIVE)]
    worlds = [_world(root, rotated[number], rotated[number + 1 : number + 4], seed + number) for number in (0, 5)]
    metrics = [[*(world.metrics(arm, 0, 0.6) for arm in ("bm25", "random")), baseline(world.task, root=str(root))]
               for world in worlds]  # fmt: skip
    notes = [f"A note of ours on {rotated[3]}"]
    yield from _files("report", report(metrics[0], notes=notes, root=str(root)))
    yield from _files("report", report_multitask([uri for one in metrics for uri in one], root=str(root)))
    subsets = worlds[0].subsets
    yield from _files("study", retrieval_study([subsets["bm25"], subsets["random"]], root=str(root)))
    yield "dataset_card.md", kfp.dataset_card(subsets["bm25"])
    yield "preview.md", preview(subsets["bm25"], examples=3, form="markdown")
    if encoder:
        checkpoint, model = random_model(root, worlds[0].task, words(30, seed))
        names = [rotated[4], rotated[5]]
        yield from _files("study", attention([model, checkpoint], task=worlds[0].task, names=names, root=str(root)))


def _world(root: Path, name: str, labels: tuple[str, ...], seed: int) -> World:
    found = texts(60, seed)
    splits = ["train"] * 30 + ["dev"] * 10 + ["test"] * 20
    rows: list[Row] = [(text, None, labels[n % 3], splits[n]) for n, text in enumerate(found)]
    return _Hostile(root, make_task(root, rows, "macro_f1", sorted(labels), name), found)


class _Hostile(World):
    """Sources, ids and reasons are hostile too."""

    def _corpus(self, draft: Draft) -> None:
        super()._corpus(draft)
        for name in ("passages-00000.parquet", "passages-00001.parquet"):
            start = 0 if "00000" in name else len(self.passages) // 2
            part = self.passages[start : start + len(self.passages) // 2]
            save(draft, name, {"doc": [start + n for n in range(len(part))], "id": part, "text": part,
                               "source": [ACTIVE[n % len(ACTIVE)] for n in range(len(part))]})  # fmt: skip
        columns = {"file": [ACTIVE[1]], "line": [7], "reason": [ACTIVE[2]], "detail": [ACTIVE[0]]}
        save(draft, "rejected.parquet", columns)


def _files(kind: str, uri: str) -> Iterator[tuple[str, str]]:
    artifact = Artifact.open(uri)
    for ending in ("html", "md"):
        path = artifact.path(f"{kind}.{ending}")
        yield f"{artifact.manifest.step}.{ending}", path.read_text(encoding="utf-8")


def is_inert(name: str, text: str) -> None:
    """Nothing in a page can act, nothing in it is hidden, and what was hostile is shown as text."""
    assert not BIDI_AND_CONTROLS.search(text.replace("\n", ""))
    if name.endswith(".html"):
        is_safe(text)
        assert _hostile_in(Page(text).text)
    else:
        _is_inert_markdown(text)


def _is_inert_markdown(text: str) -> None:
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in [*tokens, *inline]}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "fence", "hr", "blockquote_open"}
    outside = " ".join(child.content for child in inline if child.type == "text")
    assert not re.search(rf"{HOST}|https?:", outside)
    assert _hostile_in(" ".join(child.content for child in inline if child.type == "code_inline"))


def _hostile_in(shown: str) -> bool:
    return any(piece[:10] in shown for piece in ACTIVE)
