"""The tasks and corpora of the paper by name: `paper:scierc`, `glue:mnli`, `paper:bert`. The facts are in TOML files.

A name stands for addresses on the Hub, or for files of the same shape in a folder, and for all that one would have to
say with them: columns, labels and their order, the published metric. Published sizes are compared with what is there;
a difference is said, not refused.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from tlm.errors import InputError, nearest
from tlm.progress import say

NAME = re.compile(r"([A-Za-z][\w-]*):([A-Za-z][\w-]*)")
NOTICEABLE = 0.01  # of a corpus' documents


class Columns(BaseModel):
    """Where a row has what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text_field: str = "text"
    pair_field: str = ""
    label_field: str = "label"


class TaskEntry(BaseModel):
    """One task, as tasks.toml explains it."""

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
    columns: tuple[Columns, ...]
    header: tuple[str, ...] = ()
    subsets: dict[str, str] = {}
    sizes: dict[str, int]
    evidence: str
    unverified: tuple[str, ...] = ()

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers to predict, not classes."""
        return not self.labels

    @property
    def addresses(self) -> dict[str, str]:
        """Where the Hub has each split."""
        return {split: self.hub + part for split, part in self.splits.items()}

    @property
    def order(self) -> list[str]:
        """Every label that an example may have, in order."""
        numbers = [] if self.ordinals else [str(number) for number in range(len(self.labels))]
        return list(dict.fromkeys((*self.labels, *numbers)))

    def label(self, found: str, where: str) -> str:
        """The label that `found` means. Raises InputError, naming `where`, if it is none of this task's."""
        if self.regression:
            try:
                float(found)
            except ValueError:
                raise InputError(f"{where}: '{found}' is no number; the labels of {self.title} are numbers") from None
            return found
        if self.ordinals and found.isdecimal() and int(found) < len(self.labels):
            return self.labels[int(found)]
        if found not in self.order:
            raise InputError(f"{where}: '{found}' is no label of {self.title}{nearest(found, self.labels)}")
        return found

    def compare(self, counts: Mapping[str, int], labels: int) -> None:
        """Say where numbers of examples (by split), or of classes, are not the published ones."""
        for split, published in self.sizes.items():
            if counts.get(split, 0) != published:
                doubt = ", which we could not check" if split in self.unverified else ""
                say(
                    f"warning: {self.title} has {counts.get(split, 0):,} {split} examples here, published are "
                    f"{published:,} ({self.evidence}{doubt})"
                )
        if not self.regression and labels != len(self.labels):
            say(f"warning: {self.title} has {labels} classes here, published are {len(self.labels)}")


class Part(BaseModel):
    """One part of a corpus, as corpora.toml explains it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    address: str
    note: str
    documents: int | None = None
    evidence: str = ""
    unverified: str = ""


def task_entry(path: str) -> TaskEntry | None:
    """The task that `path` names; None where it is a path or an address, and no name.

    Raises InputError: a name of the right form that no task has.
    """
    parts = _name(path)
    return None if parts is None else _tasks().get(parts) or _unknown_task(path)


def subset_address(path: str) -> str:
    """Where the authors' subset is that `path` names (``paper:scierc/small``); another path as it is.

    Raises InputError: no such task, or no subset of this scale.
    """
    name, _, scale = path.rpartition("/")
    entry = task_entry(path) if _name(path) else task_entry(name) if _name(name) else None
    if entry is None:
        return path
    if scale not in entry.subsets:
        offered = " or ".join(f"{entry.suite}:{entry.name}/{scale}" for scale in entry.subsets)
        raise InputError(f"{path} names no published subset; {f'expected {offered}' if offered else 'there is none'}")
    return entry.hub + entry.subsets[scale]


def corpus_addresses(paths: Iterable[str]) -> list[str]:
    """`paths` (or one of them) with the Hub's addresses in place of the names of corpora, which are told to the user.

    Raises InputError: a name of the right form that no corpus has.
    """
    found = []
    for path in [paths] if isinstance(paths, str) else paths:  # letter by letter "/" would be among them
        name = _name(path)
        if name is None:
            found.append(path)
            continue
        corpora, parts = _corpora()
        if name[0] != "paper" or name[1] not in corpora:
            raise _unknown(path, "corpus", [f"paper:{corpus}" for corpus in corpora])
        corpus = corpora[name[1]]
        say(f"{path}: {corpus['title']}; the original has {corpus['gigabytes']} GB")
        for part in (parts[name] for name in corpus["parts"]):
            doubt = f"; not checked: {part.unverified}" if part.unverified else ""
            say(f"  {part.title}: {part.address} ({part.note}{doubt})")
            found.append(part.address)
    return found


def compare_corpus(rows: Mapping[str, int]) -> None:
    """Say which parts of the registered corpora have another number of documents (by address) than expected."""
    for part in _corpora()[1].values():
        found, expected = rows.get(part.address), part.documents
        if found is not None and expected and abs(found - expected) > NOTICEABLE * expected:
            say(f"warning: {part.address} has {found:,} documents, expected were {expected:,} ({part.evidence})")


def _name(path: str) -> tuple[str, str] | None:
    """Suite and name, where `path` is no file and has their form."""
    match = NAME.fullmatch(path)
    return None if match is None or Path(path).exists() else (match[1], match[2])


def _unknown_task(path: str) -> NoReturn:
    raise _unknown(path, "task", [f"{suite}:{name}" for suite, name in _tasks()])


def _unknown(path: str, what: str, known: Iterable[str]) -> InputError:
    return InputError(f"{path}: there is no file and no {what} of that name{nearest(path, known)}")


@lru_cache
def _tasks() -> dict[tuple[str, str], TaskEntry]:
    """All tasks by suite and name."""
    suites = _read("tasks.toml")
    common = suites.pop("suite")
    return {
        (suite, name): TaskEntry(suite=suite, name=name, **{**common[suite], **entry})
        for suite, entries in suites.items()
        for name, entry in entries.items()
    }


@lru_cache
def _corpora() -> tuple[dict[str, dict[str, Any]], dict[str, Part]]:
    """The corpora by name, and the parts by name."""
    corpora = _read("corpora.toml")
    parts = {name: Part(**part) for name, part in corpora.pop("part").items()}
    return corpora, parts


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("tlm.data") / name).read_text(encoding="utf-8"))
