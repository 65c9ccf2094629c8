"""Predict files: one file (or stdin) into another, or many into a folder, each once."""

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from tlm.artifacts.stores import open_store
from tlm.artifacts.stores.store import Store, canonical_json, file_sha256, value_sha256
from tlm.errors import InputError
from tlm.evaluation.predict.models import check_pairs, located, of_pairs, usual_labels
from tlm.evaluation.predict.predict import answers, check_asked
from tlm.evaluation.predict.predictor import Predictor, open_predictor
from tlm.evaluation.predict.rows import SUFFIXES, InputRow, ReadFormat, opened, read_rows, table_rows
from tlm.evaluation.predict.written import WriteFormat, columns, stored, write_rows, written
from tlm.progress import say, track
from tlm.settings.options import check_apart
from tlm.shallow.folder import known_of

if TYPE_CHECKING:
    from tlm.data.reading.files import RawFile

TABLES = (".tsv", ".parquet", ".gz", ".zst")  # are read as tasks and corpora are, and not written
SHEETS = (".xls", ".xlsx")  # are neither read nor written
ANSWER = (  # fields of answers
    "row", "text", "text_pair", "label", "labels", "probability", "probabilities", "value", "unsure", "error",
)  # fmt: skip
ABOUT = "_predict.json"  # in a folder of answers: what they were made with; other commands skip such a name


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
    likeliest: int = 0,
    device: str = "auto",
) -> None:
    """Predict the label (or value) of every row, with probabilities. A bad row gets an error as its answer.

    A file is written whole or not at all. If nothing could be predicted, none is written.

    Args:
        model: URI of a model or checkpoint, of metrics or a report (the model that it recommends), or a model folder.
        source: File to read, also tsv, parquet, packed (.gz, .zst) or s3://…; - is stdin. If --to is a folder: file,
            folder or glob.
        to: File to write, or s3://…; - is stdout. A folder (its name ends with /) gets one file for each file of the
            source; a file whose answers are there already is not predicted again.
        source_format: txt (one text per line), jsonl or csv; auto decides by the file's name, else by the first line
            (an object of JSON, or column names with that of the text).
        to_format: jsonl or csv; auto is csv for a file called so, else jsonl. csv puts an apostrophe before what a
            spreadsheet would read as a formula, and spells out control characters; csv files begin with a byte order
            mark, for Excel.
        text_field: Field or column of the text; several, such as subject,body, are joined.
        pair_field: Field or column of the second text, for a task on pairs.
        keep: A field or column to copy into the answers, such as an id; may be repeated.
        at_least: Probability below which an answer is unsure: each row then also says whether it is, in the field or
            column `unsure`. By default, rows do not say so. Not for numbers, nor for several labels a text.
        likeliest: Number of labels whose probabilities a row has, the likeliest first; in csv as JSON in one column.
            By default a row has all of them, in csv a column each.
        device: Where to compute: auto (cuda if there is one, else cpu; never mps), cpu, cuda, cuda:N or mps.
    """
    to = to.removeprefix("file://")
    many = to.endswith("/") or (to not in ("", "-") and Path(to).is_dir())
    for file, form, others in ((source, source_format, SHEETS), (to, to_format, (*TABLES, *SHEETS))):
        if form == "auto" and file.lower().endswith(others):
            raise InputError(f"{file} is not called .jsonl, .csv or .txt; predict reads and writes these: convert it")
    if many and (source == "-" or source_format != "auto"):
        raise InputError(f"{to} is a folder; name files with --source, and leave out --source-format")
    if to_format == "auto":
        to_format = "csv" if SUFFIXES.get(Path(to).suffix.lower()) == "csv" else "jsonl"
    check_apart(text_field=text_field, pair_field=pair_field)
    folder, artifact = located(model)
    check_asked(folder, at_least, likeliest)
    fields = [text_field, pair_field] if pair_field else [text_field]
    keep = [*dict.fromkeys(keep)]

    def loaded() -> Asked:
        check_pairs(of_pairs(folder, artifact), bool(pair_field), "--pair-field")
        usual = usual_labels(model, artifact)
        return Asked(open_predictor(folder, device)[0], fields, keep, at_least, likeliest, to_format, usual)

    if many:
        made_with = artifact.content if artifact else known_of(folder).get("content") or _digest(folder)
        # Kubeflow gives 0 for 0.0
        options = {"model": made_with, "fields": fields, "keep": keep, "at_least": float(at_least)}
        if likeliest:
            options["likeliest"] = likeliest
        with _raw_files(source, together=False) as raw:  # before the model, which may take a minute
            return fill(open_store(to), raw, source, options, to_format, loaded)
    with ExitStack() as files:
        rows, read = _rows(source, source_format, fields, keep, files)
        summary = loaded().write(rows, source, files.enter_context(written(to, read)))
    say(f"predict: {summary}")


def _digest(folder: Path) -> str:
    """The digest of the files of a model that `tlm download` did not write; another may take its place under its name.

    Left out are answers, and what begins with . or _, as what programs note about their downloads, and `ABOUT`.
    """
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    names = [name for name in found if not re.search(r"(^|/)[._]|\.(jsonl|csv)$", name)]
    return value_sha256({name: file_sha256(found[name]) for name in names})


@dataclass
class Asked:
    """A model, and what is asked of it for each row of a file.

    Attributes:
        model: The model.
        fields: Field of the text, and of the second text if there is one.
        keep: Further fields, which answers have, too.
        at_least: Probability below which an answer is unsure; 0: rows do not say whether they are.
        likeliest: How many labels have a probability in a row; 0: all.
        form: Format of the answers.
        usual: How often each label is usual, as `usual_labels` says.

    Raises:
        InputError: answers have one of the kept fields already.
    """

    model: Predictor
    fields: list[str]
    keep: list[str]
    at_least: float
    likeliest: int
    form: WriteFormat
    usual: tuple[str, Mapping[str, int]]

    def __post_init__(self) -> None:
        """Name the columns."""
        self.head = columns(self.model, len(self.fields) > 1, self.at_least, self.likeliest)
        if taken := sorted({*self.keep} & {*self.head, *ANSWER}):
            raise InputError(f"answers have a field '{taken[0]}' of their own, so it cannot be kept; rename it")
        self.head[1:1] = self.keep

    def write(self, rows: Iterator[InputRow], source: str, sink: TextIO) -> str:
        """Answer the rows of a source; returns how many there are, in words.

        Raises InputError: there are rows, and none can be predicted.
        """
        found = answers(self.model, rows, self.at_least, self.likeliest)
        shown = found if sink is sys.stdout else track(found, "predict", unit="rows")
        sink.write("\ufeff" if self.form == "csv" and sink is not sys.stdout else "")  # for Excel
        tally = write_rows(shown, self.form, self.head, sink)
        if tally.bad and not tally.good:
            why = f"none of its {tally.bad} rows can be predicted; the first: {tally.error}"
            raise InputError(f"nothing of {source} was predicted, because {why}")
        unsure = f", {tally.unsure} of them unsure" if self.at_least else ""
        counted = f"{tally.good} rows predicted{unsure}, {tally.bad} bad rows answered with an error"
        return "; ".join([counted, *tally.described(*self.usual)])


def fill(
    store: Store,
    files: Sequence["RawFile"],
    source: str,
    options: dict[str, Any],
    form: WriteFormat,
    loaded: Callable[[], Asked],
) -> None:
    """Answer each file of a source in a file of its own, unless it is there already; a bad file stops no other.

    Args:
        store: The folder of the answers.
        files: What is read.
        source: The file, folder or glob that stands for them. The answers keep the names below its fixed part.
        options: What identifies the model, and what is asked of it.
        form: Format of the answers.
        loaded: Loads the model, if there is a file to answer.

    Raises:
        InputError: some files cannot be predicted, or the answers that are there were made in another way.
    """
    from tlm.data.reading.files import absolute, fixed_part

    folder = absolute(store.root, os.path.realpath)
    to_predict = [file for file in files if not absolute(file.where, os.path.realpath).is_relative_to(folder)]
    if not to_predict:
        raise InputError(f"all files of {source} are in {store.root}, the folder of the answers; name another --to")
    base, there = fixed_part(source, files), {entry.name: entry.modified for entry in store.list("")}
    about = canonical_json({"source": str(base), **options})
    _claim(store, about, there)
    wanted = {f"{absolute(file.where).relative_to(base)}.{form}": file for file in to_predict}
    new = {name: file for name, file in wanted.items() if name not in there}
    failed = _answer_each(store, new, about, loaded()) if new else []
    before = len(wanted) - len(new)
    say(f"predict: files written to {store.root}: {len(new) - len(failed)}; there already: {before}")
    late = [name for name, file in wanted.items() if int(file.modified) > there.get(name, math.inf)]  # S3 has seconds
    if late:
        what = f"{len(late)} files changed after they were answered, {wanted[late[0]].where} for one"
        say(f"warning: {what}; to have such a file answered again, remove its answers ({late[0]})")
    if failed:
        what = f"{len(failed)} of the {len(wanted)} files of {source} cannot be predicted"
        raise InputError(f"{what}; the first: {failed[0]}")


def _answer_each(store: Store, new: dict[str, "RawFile"], about: bytes, asked: Asked) -> list[str]:
    """Answer files under the names that their answers get; returns the error of each that cannot be answered."""
    failed = []
    for name, file in new.items():
        if store.read(ABOUT) != about:
            raise InputError(f"another run began to fill {store.root} with other options; name a new folder")
        try:
            with stored(store, name) as sink:
                file.stamp()
                summary = asked.write(table_rows(file, asked.fields, asked.keep), file.where, sink)
                file.check_unchanged()
            say(f"predict: {file.where}: {summary}")
        except InputError as error:
            failed.append(str(error))
            say(f"predict: {error}")
        with suppress(InputError, FileNotFoundError):  # it would be downloaded again, if it was not
            file.drop()
    return failed


def _claim(store: Store, about: bytes, there: Iterable[str]) -> None:
    """Note in a folder how its answers are made. Raises InputError if it has answers that were made in another way."""
    if (found := store.read(ABOUT)) == about:
        return
    answered = any(name.endswith((".jsonl", ".csv")) for name in there)  # not after a first try with a wrong field
    if answered and found is not None:
        why = "of another model or source, or with other options"
        raise InputError(f"{store.root} has answers {why} ({ABOUT} says which); name a new folder")
    store.write(ABOUT, about)


def _rows(
    source: str, form: ReadFormat, fields: list[str], keep: list[str], files: ExitStack
) -> tuple[Iterator[InputRow], list[Path]]:
    """The rows of a source, and the files that they come from."""
    if "://" in source or (form == "auto" and source.lower().endswith(TABLES)):
        raw = files.enter_context(_raw_files(source))
        rows = chain.from_iterable([table_rows(file, fields, keep) for file in raw])  # all are checked first
        return (replace(row, number=number) for number, row in enumerate(rows, 1)), [Path(file.where) for file in raw]
    if form == "auto" and source != "-":
        form = SUFFIXES.get(Path(source).suffix.lower(), "auto")
    lines, read = opened(source, files), [Path(source)] if source != "-" else []
    return read_rows(lines, form, fields[0], "".join(fields[1:]), keep), read


def _raw_files(source: str, **how: bool) -> AbstractContextManager[list["RawFile"]]:
    """What a source stands for. Raises InputError in the image that serves, which reads no tables."""
    try:
        from tlm.data.reading import readers  # noqa: F401
        from tlm.data.reading.files import raw_files
    except ImportError as error:
        raise InputError(f"{source} needs {error.name}, which is not installed; convert it to .jsonl or .csv") from None
    return raw_files([source], **how)
