"""Data sets that others published: registered tasks and corpora, and what is on the Hugging Face Hub.

A name (`paper:scierc`, `glue:mnli`, `paper:bert`) stands for Hub addresses, or for files of the same format in a
folder, and for the settings that go with them: columns, labels and their order, the published metric. The facts are in
TOML files. Sizes that differ from the published ones are reported only.

The Hub needs the package `datasets` (optional); rows are streamed. An address is ``hf://name`` or ``hf://owner/name``,
then ``/configuration`` or ``/file.csv`` (the path of a file in the data set), then ``:split`` unless it is train, then
``?column=value&…`` to keep only rows with these values (a class by its name or number). The query ``?text=column``
instead renames that column to text.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field

from tlm.artifacts.stores.store import check_url
from tlm.errors import InputError, in_pod, nearest, reason
from tlm.progress import say

NAME = re.compile(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)")
NOTICEABLE = 0.01  # of a corpus' documents


class TaskEntry(BaseModel):
    """A task; tasks.toml documents the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: str
    name: str
    title: str
    metrics: Annotated[tuple[str, ...], Field(min_length=1)]
    labels: tuple[str, ...] = ()
    ordinals: bool
    hub: str
    splits: dict[str, str]
    files: dict[str, str]
    columns: tuple[dict[str, str], ...]
    header: tuple[str, ...] = ()
    subsets: dict[str, str] = {}
    sizes: dict[str, int]
    evidence: str
    unverified: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Whether the labels are classes or numbers to predict."""
        return "classification" if self.labels else "regression"

    @property
    def addresses(self) -> dict[str, str]:
        """The Hub address of each split."""
        return {split: self.hub + part for split, part in self.splits.items()}

    @property
    def order(self) -> list[str]:
        """All labels that an example may have, in order."""
        numbers = [] if self.ordinals else [str(number) for number in range(len(self.labels))]
        return list(dict.fromkeys((*self.labels, *numbers)))

    def label(self, found: str, where: str) -> str:
        """Return the label that `found` stands for. Raises InputError, naming `where`: the task has no such label."""
        if self.ordinals and found.isdecimal() and int(found) < len(self.labels):
            return self.labels[int(found)]
        if self.labels and found not in self.order:
            raise InputError(f"{where}: '{found}' is not a label of {self.title}{nearest(found, self.labels)}")
        return found

    def compare(self, counts: Mapping[str, int], labels: int) -> None:
        """Warn if the numbers of examples (by split) or of classes differ from the published ones."""
        for split, published in self.sizes.items():
            if counts.get(split, 0) != published:
                doubt = ", unverified" if split in self.unverified else ""
                say(
                    f"warning: {self.title} has {counts.get(split, 0):,} {split} examples here, the published number "
                    f"is {published:,} ({self.evidence}{doubt})"
                )
        if self.labels and labels != len(self.labels):
            say(f"warning: {self.title} has {labels} classes here, the published number is {len(self.labels)}")


def task_entry(path: str) -> TaskEntry | None:
    """Return the task that `path` names; None if it is a path or an address. Raises InputError: unknown task."""
    if not _is_name(path):
        return None
    if path not in _tasks():
        raise _unknown(path, "task", _tasks())
    return _tasks()[path]


def subset_address(path: str) -> str:
    """Return the address of the authors' subset that `path` names (``paper:scierc/small``); other paths unchanged.

    Raises InputError: unknown task, or no subset of this scale.
    """
    name, _, scale = path.rpartition("/")
    entry = task_entry(path) or task_entry(name)
    if entry is None:
        return path
    if scale not in entry.subsets:
        offered = " or ".join(f"{entry.suite}:{entry.name}/{scale}" for scale in entry.subsets)
        raise InputError(f"{path} is not a published subset; {f'expected {offered}' if offered else 'there is none'}")
    return entry.hub + entry.subsets[scale]


def corpus_addresses(paths: Iterable[str]) -> list[str]:
    """Replace names of corpora in `paths` (one path or several) by their Hub addresses, and show these to the user.

    Raises InputError: unknown corpus.
    """
    found = []
    for path in [paths] if isinstance(paths, str) else paths:
        if not _is_name(path):
            found.append(path)
            continue
        corpora, parts = _corpora()
        if path not in corpora:
            raise _unknown(path, "corpus", corpora)
        say(f"{path}: {corpora[path]['title']}; the original has {corpora[path]['gigabytes']} GB")
        for part in (parts[name] for name in corpora[path]["parts"]):
            doubt = f"; unverified: {part['unverified']}" if "unverified" in part else ""
            say(f"  {part['title']}: {part['address']} ({part['note']}{doubt})")
            found.append(part["address"])
    return found


def compare_corpus(rows: Mapping[str, int]) -> None:
    """Warn if parts of registered corpora have another number of documents (by address) than expected."""
    for part in _corpora()[1].values():
        found, expected = rows.get(part["address"]), part.get("documents")
        if found is not None and expected and abs(found - expected) > NOTICEABLE * expected:
            say(f"warning: {part['address']} has {found:,} documents, expected {expected:,} ({part['evidence']})")


def _is_name(path: str) -> bool:
    return NAME.fullmatch(path) is not None and not Path(path).exists()


def _unknown(path: str, what: str, known: Iterable[str]) -> InputError:
    return InputError(f"{path}: no such file, and no {what} of that name{nearest(path, known)}")


@lru_cache
def _tasks() -> dict[str, TaskEntry]:
    """All tasks by ``suite:name``."""
    suites = _read("tasks.toml")
    common = suites.pop("suite")
    return {
        f"{suite}:{name}": TaskEntry(suite=suite, name=name, **{**common[suite], **entry})
        for suite, entries in suites.items()
        for name, entry in entries.items()
    }


@lru_cache
def _corpora() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The corpora by ``paper:name``, and their parts by name; corpora.toml documents the fields."""
    corpora = _read("corpora.toml")
    parts = corpora.pop("part")
    return {f"paper:{name}": corpus for name, corpus in corpora.items()}, parts


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("tlm.data") / name).read_text(encoding="utf-8"))


EXPECTED = "expected hf://name, hf://owner/name or hf://owner/name/config, each followed by :split unless it is train"
_FILE = re.compile(r"\.(csv|tsv|json|jsonl|parquet|txt)(\.(gz|zst))?$")
_MISSING = {"RepositoryNotFoundError", "DatasetNotFoundError"}
_UNREACHABLE = {"ConnectionError", "NetworkError", "TimeoutException", "Timeout", "ConnectTimeout", "URLError"}


class Address(NamedTuple):
    """The parts of an address."""

    name: str  # of the data set, with its owner
    part: str  # configuration, or path of a file in the data set, or ""
    is_file: bool
    split: str
    text: str  # column to be renamed to text, or ""
    only: tuple[tuple[str, str], ...]  # required values by column


def hub_name(address: str) -> str:
    """Return ``name/config:split``, for ids and sources. Raises InputError: bad address, package `datasets` missing."""
    try:
        import datasets  # noqa: F401
    except ImportError:
        advice = "the images have none, so give files" if in_pod() else "in a checkout, `pip install '.[hub]'`"
        raise InputError(f"{address}: Hub data sets need the package datasets; {advice}") from None
    check_endpoint()
    parts = _parts(address)
    name = "/".join(filter(None, (parts.name.split("/")[-1], parts.part)))
    return name if parts.is_file else f"{name}:{parts.split}"


def check_endpoint() -> None:
    """Raise InputError where ``HF_ENDPOINT`` names a server that may not be used instead of the Hub."""
    if endpoint := os.environ.get("HF_ENDPOINT"):
        check_url(endpoint, "HF_ENDPOINT")


def hub_digest(address: str) -> str:
    """Return what determines the rows: address and commit of the data set. Raises InputError: no access to the Hub."""
    parts = _parts(address)
    chosen = "".join(f"?{column}={value}" for column, value in (("text", parts.text), *parts.only) if value)
    with _explained(address):
        return f"{parts.name}/{parts.part}:{parts.split}{chosen}@{_commit(parts.name)}"


def hub_rows(address: str) -> Iterator[dict[str, Any]]:
    """Yield the rows in order, by field, classes by their names.

    Raises InputError: the Hub is unreachable or lacks the data set.
    """
    from datasets import load_dataset

    parts = _parts(address)
    where: dict[str, Any] = {"data_files": {parts.split: parts.part}} if parts.is_file else {"name": parts.part or None}
    with _explained(address):
        rows = load_dataset(parts.name, split=parts.split, streaming=True, revision=_commit(parts.name), **where)
        classes = class_names(rows.features.arrow_schema) if rows.features else {}
        for row in rows:
            named = row | {column: class_name(row[column], names) for column, names in classes.items()}
            if all(column in row and value in (str(row[column]), named[column]) for column, value in parts.only):
                yield {**named, "text": named.get(parts.text)} if parts.text else named


def class_names(schema: Any) -> dict[str, list[str]]:
    """The names of classes by column, if `datasets` wrote this schema of pyarrow; the column may hold lists."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        inner = {column: of.get("feature", of) for column, of in features.items() if isinstance(of, dict)}
        return {column: feature["names"] for column, feature in inner.items() if feature.get("_type") == "ClassLabel"}
    except (AttributeError, KeyError, TypeError, ValueError):  # written by something else
        return {}


def class_name(value: Any, names: Sequence[str]) -> Any:
    """The name of a class, or of each in a list; None for -1, which stands for no label."""
    if isinstance(value, list):
        return [class_name(one, names) for one in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


@lru_cache
def _commit(name: str) -> str:
    from huggingface_hub import HfApi

    return str(HfApi().dataset_info(name).sha)


def _parts(address: str) -> Address:
    place, _, query = address.removeprefix("hf://").partition("?")
    place, _, split = place.partition(":")
    names = place.split("/")
    part = "/".join(names[2:])
    is_file = _FILE.search(part) is not None
    if not all(names) or (len(names) > 3 and not is_file):
        raise InputError(f"{address} is not the address of a Hub data set; {EXPECTED}")
    wanted = dict(parse_qsl(query))
    text = wanted.pop("text", "")
    return Address("/".join(names[:2]), part, is_file, split or "train", text, tuple(sorted(wanted.items())))


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Turn the many kinds of exceptions of the Hub's clients into an InputError."""
    try:
        yield
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        if _MISSING & kinds:
            found = "the Hub has no such data set, or it is private; check the name"
        elif _UNREACHABLE & kinds:
            found = f"cannot reach the Hugging Face Hub ({reason(error)}); check the network or use local files"
        else:
            found = f"cannot be read from the Hub: {reason(error)}; check name, split and network"
        raise InputError(f"{address}: {found}") from None
