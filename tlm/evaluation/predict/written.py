"""Rows of answers, written as JSON lines or CSV. No terminal and no spreadsheet can read a command in them."""

import csv
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from tlm.artifacts.stores import open_store
from tlm.artifacts.stores.local import scratch_folder, whole
from tlm.artifacts.stores.store import Store
from tlm.errors import InputError
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, escaped, label_text, spelled
from tlm.evaluation.predict.predictor import Predictor

WriteFormat = Literal["jsonl", "csv"]
MOST_SHOWN = 5  # labels, in the log

# Where a formula could begin: at the start of a cell, and after a line break, semicolon or tab, because spreadsheets
# may split cells there. A signed number alone, such as the class -1, is none.
_FORMULA = re.compile(r"^(?=[\t\r\n])|(?!\A[+-][0-9]+(?:[.,][0-9]+)?\Z)(?:^|(?<=[;\t\n]))(?=[=+\-@＝＋－＠])")
_UNSEEN = re.compile(rf"{BIDI_AND_CONTROLS.pattern}(?<!\r(?=\n))")  # a lone \r would end the row
_HARMFUL = re.compile(rf"{_UNSEEN.pattern}(?<![\u00ad\u061c\u200b\u200e\u200f\ufeff])")  # others belong to texts


def columns(model: Predictor, pair: bool, at_least: float, likeliest: int = 0) -> list[str]:
    """The columns of predicted rows in CSV.

    Several labels of a text stand in one cell, and so do the probabilities of the likeliest labels, as JSON.
    """
    texts = ["text", "text_pair"] if pair else ["text"]
    if model.labels is None:
        return ["row", *texts, "value", "error"]
    answer = ["label", "probability"] if model.thresholds is None else ["labels"]
    unsure = ["unsure"] if at_least else []
    chances = ["probabilities"] if likeliest else [f"p({label})" for label in model.labels]
    return ["row", *texts, *answer, *unsure, *chances, "error"]


@dataclass
class Tally:
    """What was answered.

    Attributes:
        good: Number of rows with an answer.
        unsure: How many of these are unsure.
        bad: Number of rows without one.
        error: That of the first bad row.
        sure: Sum of the probabilities of the answers.
        labels: How often each label was given; empty for numbers.
    """

    good: int = 0
    unsure: int = 0
    bad: int = 0
    error: str = ""
    sure: float = 0.0
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, row: dict[str, Any]) -> None:
        """Count a row."""
        if "error" in row:
            self.bad += 1
            self.error = self.error or row["error"]
            return
        self.good += 1
        self.unsure += row.get("unsure", False)
        self.sure += row.get("probability", 0.0)
        self.labels.update([row["label"]] if "label" in row else row.get("labels", []))

    def described(self, where: str, usual: Mapping[str, int]) -> Iterator[str]:
        """Say how sure the answers are and which labels they give, beside how usual these are, if known."""
        if self.sure:
            yield f"mean probability {self.sure / self.good:.2f}"
        answered, known, shares = self.labels.total(), sum(usual.values()), []
        for label, count in self.labels.most_common(MOST_SHOWN):
            beside = f" ({where}: {usual.get(label, 0) / known:.0%})" if known else ""
            shares.append(f"{label} {count / answered:.0%}{beside}")
        more = f" and {len(self.labels) - MOST_SHOWN} more" if len(self.labels) > MOST_SHOWN else ""
        if shares:
            yield f"labels: {', '.join(shares)}{more}"


def write_rows(rows: Iterable[dict[str, Any]], form: WriteFormat, head: Sequence[str], sink: TextIO) -> Tally:
    """Write predicted rows one at a time, and count them.

    No terminal and no spreadsheet can read a command in them: JSON escapes control and direction characters, so that
    values are unchanged; `inert` says what is done in CSV, whose columns are `head`.
    """
    tally = Tally()
    writer = csv.writer(sink, lineterminator="\n")
    if form == "csv":
        writer.writerow(map(inert, head))
    for row in rows:
        if form == "jsonl":
            sink.write(_json_line(row))
        else:
            cells = row | {f"p({label})": value for label, value in row.get("probabilities", {}).items()}
            cells |= {"labels": label_text(row.get("labels")), "unsure": str(row.get("unsure", "")).lower()}
            writer.writerow(inert(cells.get(name, "")) for name in head)
        tally.add(row)
    return tally


def check_new(to: str) -> None:
    """Raise InputError unless `write_new` can write this file: an older one may hold what a person filled in."""
    if Path(to).suffix not in (".csv", ".jsonl"):
        raise InputError(f"{to} is not called .csv or .jsonl; name such a file to write")
    if Path(to).exists() or not Path(to).resolve().parent.is_dir():
        raise InputError(f"{to} exists, or its folder does not; name a new file in a folder that exists")


def write_new(to: str, rows: Sequence[dict[str, Any]], head: Sequence[str]) -> None:
    """Write rows with the fields `head` into a new file, CSV or JSON lines by its extension, as `write_rows` does."""
    check_new(to)  # again: it may be there since the command began
    with written(to, ()) as sink:
        if to.endswith(".jsonl"):
            sink.writelines(map(_json_line, rows))
        else:
            sink.write("\ufeff")  # for Excel
            cells = ([inert(cell, _HARMFUL) for cell in line] for line in (head, *(row.values() for row in rows)))
            csv.writer(sink, lineterminator="\n").writerows(cells)


def _json_line(row: dict[str, Any]) -> str:
    return escaped(json.dumps(row, ensure_ascii=False, allow_nan=False)) + "\n"


def inert(cell: Any, unseen: re.Pattern[str] = _UNSEEN) -> Any:
    """A CSV cell: text gets an apostrophe before what a spreadsheet would read as a formula; numbers stay as they are.

    Control and direction characters are spelled out (`unseen`); lists and objects are JSON.
    """
    cell = json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else cell
    return _FORMULA.sub("'", unseen.sub(spelled, cell)) if isinstance(cell, str) else cell


@contextmanager
def written(to: str, read: Sequence[Path]) -> Iterator[TextIO]:
    """Open what answers are written to. A file appears at the end, and not after an error."""
    if to == "-":
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(to)
    if path in read or (path.exists() and any(path.samefile(one) for one in read if one.exists())):
        raise InputError(f"{to} is a file that is read; name another one to write")
    if "://" in to:
        folder, _, name = to.rpartition("/")
        with stored(open_store(folder), name) as sink:
            yield sink
        return
    with whole(path, f"{to} is not written; the command begins with the first row each time") as sink:
        yield sink


@contextmanager
def stored(store: Store, name: str) -> Iterator[TextIO]:
    """Open a file that appears in a store at the end, and not after an error."""
    with scratch_folder(store.scratch(), "predict") as folder:
        part = folder / "answers"
        with part.open("w", encoding="utf-8", newline="") as sink:
            yield sink
        store.add(name, part)
