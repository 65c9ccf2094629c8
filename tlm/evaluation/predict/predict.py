"""Predict new texts: a file or stdin in, JSON lines or CSV out, in chunks, so that memory stays flat."""

import csv
import json
import os
import re
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Literal, TextIO

from tlm.artifacts.artifact import Artifact
from tlm.data.text import csv_separator, normalise
from tlm.errors import InputError, nearest, with_article
from tlm.evaluation.pages.text import BIDI_AND_CONTROLS, escaped, label_text, spelled
from tlm.evaluation.predict.predictor import Predictor, labels_of, open_predictor
from tlm.progress import say, track
from tlm.settings.options import Range
from tlm.shallow.folder import CONFIG, known_of

ReadFormat = Literal["auto", "txt", "jsonl", "csv"]
WriteFormat = Literal["jsonl", "csv"]

CHUNK = 1024
ANSWER = (  # fields of answers
    "row", "text", "text_pair", "label", "labels", "probability", "probabilities", "value", "unsure", "error",
)  # fmt: skip
SUFFIXES: dict[str, ReadFormat] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".txt": "txt",
}  # fmt: skip
TABLES = (".tsv", ".parquet", ".gz", ".zst")  # are read as tasks and corpora are, and not written
SHEETS = (".xls", ".xlsx")  # are neither read nor written
# Where a formula could begin: at the start of a cell, and after a line break, semicolon or tab, because spreadsheets
# may split cells there. A signed number alone, such as the class -1, is none.
_FORMULA = re.compile(r"^(?=[\t\r\n])|(?!\A[+-][0-9]+(?:[.,][0-9]+)?\Z)(?:^|(?<=[;\t\n]))(?=[=+\-@＝＋－＠])")
_UNSEEN = re.compile(rf"(?!\r\n){BIDI_AND_CONTROLS.pattern}")  # a lone \r would end the row
_HARMFUL = re.compile(rf"(?![\u00ad\u061c\u200b\u200e\u200f\ufeff]){_UNSEEN.pattern}")  # others belong to texts
_SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST_CELL = 2**31 - 1


@dataclass(frozen=True)
class InputRow:
    """A text or pair of texts to predict, or an error.

    Attributes:
        number: Row number, from 1.
        text: The text.
        pair: The second text, for a task on pairs.
        error: What is wrong with the row; "" if nothing is.
        kept: Other fields of the row, which its answer has, too.
    """

    number: int
    text: str = ""
    pair: str | None = None
    error: str = ""
    kept: dict[str, Any] = field(default_factory=dict)


def predict_command(
    model: str,
    *,
    source: str = "-",
    to: str = "-",
    source_format: ReadFormat = "auto",
    to_format: Literal["auto", "jsonl", "csv"] = "auto",
    text_field: str = "text",
    pair_field: str = "",
    keep: Sequence[str] = (),
    at_least: float = 0.0,
    device: str = "auto",
) -> None:
    """Predict the label (or value) of every row, with probabilities. A bad row gets an error as its answer.

    A file is written whole or not at all: not if nothing could be predicted.

    Args:
        model: URI of a model or checkpoint, of metrics or a report (the model that it recommends), or a model folder.
        source: File to read, also tsv, parquet, packed (.gz, .zst) or s3://…; - is stdin.
        to: File to write; - is stdout.
        source_format: txt (one text per line), jsonl or csv; auto decides by the file's name, else by the first line
            (an object of JSON, or column names with that of the text).
        to_format: jsonl or csv; auto is csv for a file called so, else jsonl. csv puts an apostrophe before what a
            spreadsheet would read as a formula, and spells out control characters.
        text_field: Field or column of the text.
        pair_field: Field or column of the second text, for a task on pairs.
        keep: A field or column that answers have, too, such as an id; may be repeated.
        at_least: Probability below which an answer is unsure: each row then also says whether it is, in the field or
            column `unsure`. By default, rows do not say so. Not for numbers, nor for several labels a text.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.
    """
    for file, form, others in ((source, source_format, SHEETS), (to, to_format, (*TABLES, *SHEETS))):
        if form == "auto" and file.lower().endswith(others):
            raise InputError(f"{file} is not called .jsonl, .csv or .txt; predict reads and writes these: convert it")
    table = "://" in source or (source_format == "auto" and source.lower().endswith(TABLES))
    if source_format == "auto" and source != "-":
        source_format = SUFFIXES.get(Path(source).suffix.lower(), "auto")
    if to_format == "auto":
        to_format = "csv" if SUFFIXES.get(Path(to).suffix.lower()) == "csv" else "jsonl"
    folder, artifact = located(model)
    check_at_least(at_least, folder)
    keep = [*dict.fromkeys(keep)]
    with ExitStack() as files:
        if table:
            rows, read = _table_rows(source, [text_field, *([pair_field] if pair_field else [])], keep, files)
        else:
            rows = read_rows(_opened(source, files), source_format, text_field, pair_field, keep)
            read = [Path(source)] if source != "-" else []
        check_pairs(of_pairs(folder, artifact), bool(pair_field), "--pair-field")
        predictor, _ = open_predictor(folder, device)
        head = columns(predictor, bool(pair_field), at_least)
        if taken := sorted({*keep} & {*head, *ANSWER}):
            raise InputError(f"answers have a field '{taken[0]}' of their own, so it cannot be kept; rename it")
        sink = files.enter_context(_written(to, read))
        head[1:1] = keep
        found = answers(predictor, rows, at_least)
        shown = found if to == "-" else track(found, "predict", unit="rows")
        count, error = write_rows(shown, to_format, head, sink)
        if count["bad"] and not count["good"]:
            why = f"none of its {count['bad']} rows can be predicted; the first: {error}"
            raise InputError(f"nothing of {source} was predicted, because {why}")
    unsure = f", {count['unsure']} of them unsure" if at_least else ""
    say(f"predict: {count['good']} rows predicted{unsure}, {count['bad']} bad rows answered with an error")


def predict(
    model: str, texts: Iterable[str | tuple[str, str]], *, at_least: float = 0.0, device: str = "auto"
) -> Iterator[dict[str, Any]]:
    """Predict texts (or pairs of texts) in order; yields the rows that the command writes.

    Args:
        model: URI of a model or checkpoint, of metrics or a report, or a model folder.
        texts: Texts, or pairs of texts, but not a mix of both.
        at_least: Probability below which an answer is unsure; 0: rows do not say whether they are.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.

    Yields:
        row (from 1), text, label, probability, probabilities by label; or value for regression; or error. Of a model of
        several labels a text labels, a list that may be empty, in place of label and probability. With `at_least` also
        unsure, true or false.
    """
    folder, artifact = located(model)
    check_at_least(at_least, folder)
    learned = of_pairs(folder, artifact)

    def rows() -> Iterator[InputRow]:
        for number, text in enumerate(texts, 1):
            check_pairs(learned, not isinstance(text, str), "tuples")
            yield checked(number, [text] if isinstance(text, str) else text)

    yield from answers(open_predictor(folder, device)[0], rows(), at_least)


def check_at_least(at_least: float, folder: Path) -> None:
    """Raise InputError unless the answers of this model can be unsure below this probability."""
    Range("a probability from 0 to 1", 0, 1).check("at_least", at_least)
    labels, several = labels_of(folder) if at_least else ([], False)
    if labels is None or several:
        kind = "several labels a text, each with a threshold of its own" if several else "numbers"
        raise InputError(f"the model answers with {kind}; --at-least needs one label a text: leave it out")


def of_pairs(folder: Path, model: Artifact | None) -> bool | None:
    """Whether a model that `located` found learned from pairs of texts; None if nothing says so."""
    task = model.nearest("task") if model else None
    return bool(task.details["pair"]) if task else known_of(folder).get("pair")


def check_pairs(learned: bool | None, given: bool, option: str) -> None:
    """Raise InputError if a model of pairs gets single texts, or the other way round; `option` gives second texts."""
    if learned is not None and learned != given:
        advice = f"do without {option}" if given else f"give the second text of each pair with {option}"
        raise InputError(f"the model learned from {'single texts' if given else 'pairs of texts'}; {advice}")


def answers(predictor: Predictor, rows: Iterator[InputRow], at_least: float = 0.0) -> Iterator[dict[str, Any]]:
    """Answer each row, in order, `CHUNK` rows at a time."""
    while chunk := list(islice(rows, CHUNK)):
        good = [row for row in chunk if not row.error]
        found = iter(_predicted(predictor, good, at_least))
        for row in chunk:
            yield {"row": row.number, **row.kept, "error": row.error} if row.error else next(found)


def located(model: str) -> tuple[Path, Artifact | None]:
    """The folder with config.json, and its artifact: `model` itself and None, or what a URI stands for."""
    if (Path(model) / CONFIG).is_file():
        return Path(model), None
    artifact = trained(model)
    return artifact.path("model"), artifact


def trained(uri: str) -> Artifact:
    """The model or checkpoint that a URI stands for: itself, what metrics are of, or what a report says to use.

    Raises:
        InputError: there is none, such as of imported predictions or of a report on several tasks.
    """
    found = Artifact.open(uri, "model", "checkpoint", "metrics", "report")
    if found.manifest.kind == "report":
        found = recommended_by(found)[0]
    model = model_of(found) if found.manifest.kind == "metrics" else found
    if model is None:
        raise InputError(f"{uri} is of imported predictions, so there is no model")
    return model


def recommended_by(report: Artifact) -> tuple[Artifact, dict[str, Any]]:
    """The metrics of the model that a report says to use, of its seeds the one best on dev; and the report's facts."""
    if report.manifest.step != "report":
        raise InputError(f"{report.uri} is on several tasks; give the report of one task")
    facts = report.json("report.json")
    if "metrics" not in facts["best"]:
        raise InputError(f"{report.uri} is of an older version, which does not say which model to use; make it again")
    inputs = report.manifest.inputs.items()
    return report.input(next(role for role, metrics in inputs if metrics.key == facts["best"]["metrics"])), facts


def model_of(metrics: Artifact) -> Artifact | None:
    """The model that metrics are of; None if they were imported."""
    return next((metrics.input(name) for name in ("model", "checkpoint") if name in metrics.manifest.inputs), None)


def _predicted(predictor: Predictor, rows: list[InputRow], at_least: float) -> Iterator[dict[str, Any]]:
    pairs = [normalise(row.pair or "") for row in rows] if any(row.pair is not None for row in rows) else None
    predicted = predictor.predict([normalise(row.text) for row in rows], pairs)  # as texts were that it learned from
    for row, values in zip(rows, predicted.tolist(), strict=True):
        answer = {"value": values[0]} if predictor.labels is None else chosen(values, predictor, at_least)
        pair = {} if row.pair is None else {"text_pair": row.pair}
        yield {"row": row.number, **row.kept, "text": row.text, **pair, **answer}


def chosen(chances: list[float], model: Predictor, at_least: float = 0.0) -> dict[str, Any]:
    """The likeliest label, its probability, and the probabilities of all labels.

    Of a model of several labels a text those above their thresholds, the likeliest first, and all probabilities.
    If `at_least` is above 0, also whether the probability is below it: an unsure answer.
    """
    named = dict(zip(model.labels or [], chances, strict=True))
    if model.thresholds is not None:
        above = [label for label, least in zip(named, model.thresholds, strict=True) if named[label] > least]
        return {"labels": sorted(above, key=lambda label: -named[label]), "probabilities": named}
    label = max(named, key=named.__getitem__)
    unsure = {"unsure": named[label] < at_least} if at_least else {}
    return {"label": label, "probability": named[label], **unsure, "probabilities": named}


def _opened(source: str, files: ExitStack) -> Iterator[str]:
    if source == "-":
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="")  # type: ignore[union-attr]
        return iter(sys.stdin)
    try:
        stream: TextIO = Path(source).open(encoding="utf-8", errors="surrogateescape", newline="")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}; name a file of texts, or - for stdin") from None
    return iter(files.enter_context(stream))


@contextmanager
def _written(to: str, read: Sequence[Path]) -> Iterator[TextIO]:
    """Open what answers are written to. A file appears at the end, and not after an error."""
    if to == "-":
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    target = part = Path(to).resolve()
    if target.exists() and any(target.samefile(one) for one in read if one.exists()):
        raise InputError(f"{to} is a file that is read; name another one to write")
    if (target.is_file() or not target.exists()) and os.access(target.parent, os.W_OK):  # no device
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        sink = part.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"{to} cannot be written: {error.strerror}; name a file in a folder that exists") from None
    try:
        with sink:
            yield sink
        if part != target:
            shutil.move(part, target)  # copies where `to` is a mount, which cannot be replaced
    finally:
        if part.exists() and part != target:
            part.unlink()
            say(f"predict: {to} is not written; predict begins with the first row each time")


def read_rows(
    lines: Iterator[str], form: ReadFormat, text_field: str, pair_field: str = "", keep: Sequence[str] = ()
) -> Iterator[InputRow]:
    """Read rows in order; empty lines of jsonl and csv are none. Bytes that are not UTF-8 come as surrogate escapes.

    Args:
        lines: Lines of the file, with their line ends.
        form: Format; ``auto`` reads what the first line with text is: an object of JSON, CSV's names, or plain text.
        text_field: Field of the text (jsonl, csv).
        pair_field: Field of the second text; empty for single texts.
        keep: Further fields.

    Raises InputError: there is no row at all, or the CSV header lacks a field or has it twice.
    """
    lines = chain([next(lines, "").removeprefix("\ufeff")], lines)
    empty: list[str] = []
    for first in lines:
        if first.strip() and not first.startswith("sep="):  # a hint for Excel
            break
        empty.append(first)
    else:
        raise InputError("the input is empty; expected one text per row")
    if "\0" in first:
        raise InputError("the input is UTF-16 or no text; convert it, as iconv -f UTF-16 -t UTF-8 does")
    csv.field_size_limit(LONGEST_CELL)
    if form == "auto":
        named = text_field in next(csv.reader([first], delimiter=csv_separator(first)), [])
        form = "jsonl" if first.lstrip(" \t").startswith("{") else "csv" if named else "txt"
    whole = chain(empty if form == "txt" else [], [first], lines)  # where they are rows
    fields = [text_field, pair_field] if pair_field else [text_field]
    if form == "csv":
        return _csv_rows(whole, fields, keep, csv_separator(first))
    if form == "txt":
        if others := [*fields[1:], *keep] or [text_field] * (text_field != "text"):
            advice = "give jsonl or csv, or name the format with --source-format"
            raise InputError(f"plain text has no field '{others[0]}'; {advice}")
        return (checked(number, [line.rstrip("\r\n")]) for number, line in enumerate(whole, 1))
    filled = (line for line in whole if line.strip())
    return (_record_row(number, _parsed(line), fields, keep) for number, line in enumerate(filled, 1))


def columns(model: Predictor, pair: bool, at_least: float) -> list[str]:
    """The columns of predicted rows in CSV, where several labels of a text stand in one cell."""
    answer = ["label", "probability"] if model.thresholds is None else ["labels"]
    unsure = ["unsure"] if at_least else []
    chances = [f"p({label})" for label in model.labels or []]
    texts = ["text", "text_pair"] if pair else ["text"]
    return ["row", *texts, *(["value"] if model.labels is None else answer), *unsure, *chances, "error"]


def write_rows(
    rows: Iterable[dict[str, Any]], form: WriteFormat, head: Sequence[str], sink: TextIO
) -> tuple[Counter[str], str]:
    """Write predicted rows one at a time; returns how many are good, unsure and bad, and the first error.

    No terminal and no spreadsheet can read a command in them: JSON escapes control and direction characters, so that
    values are unchanged; `inert` says what is done in CSV, whose columns are `head`.
    """
    counts, error = Counter[str](), ""
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
        counts["bad" if "error" in row else "good"] += 1
        counts["unsure"] += row.get("unsure", False)
        error = error or row.get("error", "")
    return counts, error


def check_new(to: str) -> None:
    """Raise InputError unless `write_new` can write this file: an older one may hold what a person filled in."""
    if Path(to).suffix not in (".csv", ".jsonl"):
        raise InputError(f"{to} is not called .csv or .jsonl; name such a file to write")
    if Path(to).exists() or not Path(to).resolve().parent.is_dir():
        raise InputError(f"{to} exists, or its folder does not; name a new file in a folder that exists")


def write_new(to: str, rows: Sequence[dict[str, Any]], head: Sequence[str]) -> None:
    """Write rows with the fields `head` into a new file, CSV or JSON lines by its extension, as `write_rows` does."""
    own = to.endswith(".jsonl")
    with Path(to).open("x", encoding="utf-8" if own else "utf-8-sig", newline="") as sink:  # for Excel
        if own:
            sink.writelines(map(_json_line, rows))
        else:
            cells = ([inert(cell, _HARMFUL) for cell in line] for line in (head, *(row.values() for row in rows)))
            csv.writer(sink, lineterminator="\n").writerows(cells)


def _json_line(row: dict[str, Any]) -> str:
    return BIDI_AND_CONTROLS.sub(escaped, json.dumps(row, ensure_ascii=False, allow_nan=False)) + "\n"


def inert(cell: Any, unseen: re.Pattern[str] = _UNSEEN) -> Any:
    """A CSV cell: text gets an apostrophe before what a spreadsheet would read as a formula; numbers stay as they are.

    Control and direction characters are spelled out (`unseen`); lists and objects are JSON.
    """
    cell = json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else cell
    return _FORMULA.sub("'", unseen.sub(spelled, cell)) if isinstance(cell, str) else cell


def _table_rows(
    source: str, fields: list[str], keep: Sequence[str], files: ExitStack
) -> tuple[Iterator[InputRow], list[Path]]:
    """The rows of the files that a source stands for, and the paths of those."""
    try:
        from tlm.data.reading.files import raw_files
        from tlm.data.reading.readers import check, read
        from tlm.data.reading.records import Reject
    except ImportError as error:  # in the image that serves
        raise InputError(f"{source} needs {error.name}, which is not installed; convert it to .jsonl or .csv") from None
    found, wanted = files.enter_context(raw_files([source])), [*fields, *keep]
    if any(file.format == "txt" for file in found):
        raise InputError(f"{source} is plain text; unpack it, and name a file of this machine")
    for file in found:
        check(file, wanted)

    def rows() -> Iterator[InputRow]:
        for number, row in enumerate(chain.from_iterable(read(file, wanted) for file in found), 1):
            record = f"{row.reason}: {row.detail}" if isinstance(row, Reject) else dict(row.values)
            yield _record_row(number, record, fields, keep)

    return rows(), [Path(file.where) for file in found]


def _csv_rows(lines: Iterator[str], fields: list[str], keep: Sequence[str], separator: str) -> Iterator[InputRow]:
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        header = next(reader)
    except csv.Error as error:
        raise InputError(f"the head of the CSV cannot be read: {error}; fix its first line") from None
    for name in (*fields, *keep):
        if name not in header:
            raise InputError(f"the CSV has no column '{name}'{nearest(name, header)}")
        if header.count(name) > 1:
            raise InputError(f"the CSV has {header.count(name)} columns '{name}'; give each a name of its own")
    return _csv_body(reader, fields, keep, header)


def _csv_body(reader: Any, fields: list[str], keep: Sequence[str], header: list[str]) -> Iterator[InputRow]:
    numbers = count(1)
    while True:
        try:
            if not (cells := next(reader)):  # an empty line
                continue
        except StopIteration:
            return
        except csv.Error as error:
            yield InputRow(next(numbers), error=f"not CSV: {error}")
            continue
        if len(cells) != len(header):
            yield InputRow(next(numbers), error=f"{len(cells)} cells; the header has {len(header)}")
        else:
            yield _record_row(next(numbers), dict(zip(header, cells, strict=True)), fields, keep)


def _parsed(line: str) -> Any:
    """The object in a line, or what is wrong with it as a text."""
    try:
        record = json.loads(line, parse_constant=lambda name: None)  # NaN is no JSON
    except (ValueError, RecursionError):
        return "not JSON"
    return record if isinstance(record, dict) else f"{with_article(type(record).__name__)}; expected an object"


def _record_row(number: int, record: dict[str, Any] | str, fields: list[str], keep: Sequence[str]) -> InputRow:
    if isinstance(record, str):
        return InputRow(number, error=record)
    missing = [name for name in fields if name not in record]
    row = InputRow(number, error=f"no field '{missing[0]}'") if missing else checked(number, [*map(record.get, fields)])
    return _keeping(row, {name: record.get(name) for name in keep}) if keep else row


def _keeping(row: InputRow, kept: dict[str, Any]) -> InputRow:
    """The row with these fields, as an answer can have them."""
    text = json.dumps(kept, ensure_ascii=False, default=str)  # dates of parquet
    found = _parsed(text)
    if not is_utf8(text) or not isinstance(found, dict):
        return InputRow(row.number, error="a field to keep is not UTF-8, or too deep")
    return replace(row, kept=found)


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: it has no lone surrogate."""
    return _SURROGATE.search(text) is None


def checked(number: int, values: Sequence[Any]) -> InputRow:
    """A row of these texts (one, or a pair), or what is wrong with them."""
    if not 1 <= len(values) <= 2:
        return InputRow(number, error=f"{len(values)} texts; expected one, or a pair")
    for value in values:
        if not isinstance(value, str):
            return InputRow(number, error=f"the text is {with_article(type(value).__name__)}; expected a string")
        if not value.strip():
            return InputRow(number, error="the text is empty")
        if not is_utf8(value):
            return InputRow(number, error="the text is not UTF-8")
    return InputRow(number, *values)
