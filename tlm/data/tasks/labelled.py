"""Labelled examples as they are read, before they become a task."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tlm.data.reading.files import RawFile
from tlm.data.reading.readers import read
from tlm.data.reading.records import BadRow, Reject, Rejects, Row, name_of, text_of
from tlm.data.tasks.labels import SeveralLabels, label_of
from tlm.data.tasks.splits import SPLITS, assign
from tlm.data.text import fold, tokens
from tlm.errors import InputError
from tlm.progress import track


@dataclass(frozen=True)
class Fields:
    """Where a row has what; '' where it has no such thing."""

    text_field: str
    pair_field: str
    label_field: str
    id_field: str
    group_field: str = ""

    @property
    def wanted(self) -> list[str]:
        """The fields wanted of each row, the text's first."""
        names = (self.text_field, self.pair_field, self.label_field, self.id_field, self.group_field)
        return [name for name in names if name]


@dataclass(frozen=True)
class Example:
    """A labelled text or pair, with the place it is from.

    `twin` is equal for texts with equal letters and digits; `group` is "" where the task names no field for it.
    """

    file: RawFile
    line: int
    id: str
    text: str
    pair: str | None
    label: str
    split: str
    twin: str
    group: str = ""

    @property
    def where(self) -> str:
        """File and line, for sentences."""
        return f"{self.file.where}:{self.line}"


def read_examples(files: Mapping[str, list[RawFile]], fields: Fields, rejects: Rejects) -> tuple[int, list[Example]]:
    """How many rows there are, and the examples among them in file order; the others go to `rejects`.

    Raises InputError: a list of labels, too many bad rows, or of dev or test more than a tenth.
    """
    rows, found = Counter[str](), list[Example]()
    for split, own in files.items():
        for file in own:
            for row in track(read(file, fields.wanted), f"reading {file.name}", unit="rows"):
                rows[split] += 1
                try:
                    found.append(_example(file, row, fields, split))
                except BadRow as bad:
                    rejects.add(file.name, row.line, bad.reason, bad.detail)
            file.check_unchanged()
    rejects.check(rows.total())
    for split in ("dev", "test"):
        rejects.check_held_out(split, {file.name for file in files.get(split, [])}, rows[split])
    return rows.total(), found


def divided(examples: list[Example], shares: Mapping[str, float], seed: int, by_label: bool) -> list[Example]:
    """The examples with their splits, in order train, dev, test: `shares` of those not in dev or test are drawn.

    With `by_label` each label has its share; `seed` decides which examples it is.
    """
    settled = [example for example in examples if example.split in ("dev", "test")]
    free = [example for example in examples if example.split not in ("dev", "test")]
    twins, labels = [example.twin for example in free], [example.label if by_label else "" for example in free]
    drawn = zip(free, assign(twins, labels, shares, seed), strict=True)
    found = [replace(example, split=split) for example, split in drawn] + settled
    return sorted(found, key=lambda example: SPLITS.index(example.split))


def twin_key(text: str, pair: str | None = None) -> str:
    """Equal for examples that differ in case, spaces, punctuation and markers only."""
    parts = [text] if pair is None else [text, pair]
    return "\0".join(" ".join(tokens(part)) or fold(part) for part in parts)


def _example(file: RawFile, row: Row | Reject, fields: Fields, split: str) -> Example:
    if isinstance(row, Reject):
        raise BadRow(row.reason, row.detail)
    line, values = row
    text = text_of(values, fields.text_field)
    pair = text_of(values, fields.pair_field) if fields.pair_field else None
    try:
        label = label_of(values, fields.label_field)
    except SeveralLabels:
        raise InputError(
            f"{file.where}:{line}: field '{fields.label_field}' is a list, and several labels for one text are not "
            "supported; give each text one label, or make one task for each label"
        ) from None
    name = name_of(values, fields.id_field) if fields.id_field else f"{file.name}:{line}"
    group = name_of(values, fields.group_field) if fields.group_field else ""
    return Example(file, line, name, text, pair, label, split, twin_key(text, pair), group)
