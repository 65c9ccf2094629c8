"""Files, columns and labels of a registered task."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tlm.data.reading.files import RawFile
from tlm.data.reading.readers import check
from tlm.data.registry import TaskEntry
from tlm.data.tasks.labelled import Example, Fields
from tlm.data.tasks.splits import SPLITS, split_files
from tlm.errors import InputError

PREFIX = "(?:.*[-_])?"  # chemprot_train.jsonl is train.jsonl


def named_files(entry: TaskEntry, folder: str, found: Sequence[RawFile]) -> dict[str, list[RawFile]]:
    """Return the files by split, found by Hub address or by name in `folder`. Raises InputError: one is missing."""
    if not folder:
        places = {file.where: file for file in found}
        return {split: [places[entry.addresses[split]]] if split in entry.splits else [] for split in SPLITS}
    for file in found:
        file.header = entry.header
    return split_files(folder, found, {split: f"{PREFIX}(?:{names})" for split, names in entry.files.items()})


def fitting_fields(entry: TaskEntry, files: dict[str, list[RawFile]], id_field: str) -> Fields:
    """Return the first of the task's column sets that its train file has.

    Raises InputError, about the first set, if it has none of them.
    """
    refused = None
    for columns in entry.columns:
        fields = Fields(**columns, id_field=id_field)
        try:
            check(files["train"][0], fields.wanted)
        except InputError as error:
            refused = refused or error
        else:
            return fields
    assert refused is not None, f"{entry.name} has no columns"
    raise refused


def as_published(entry: TaskEntry, examples: Sequence[Example]) -> list[Example]:
    """Return the examples with their registered label names; warn if sizes differ from the published ones.

    Raises InputError: a label that the task does not have.
    """
    found = [replace(example, label=entry.label(example.label, example.where)) for example in examples]
    entry.compare(Counter(example.split for example in found), len({example.label for example in found}))
    return found
