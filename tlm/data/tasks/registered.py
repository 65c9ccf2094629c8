"""Raw files and examples of a task that has an entry in the registry: which file is which, what a label means."""

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
    """The files by split: of the Hub by their addresses, of a `folder` by their names. InputError: one is missing."""
    if not folder:
        of = {file.where: file for file in found}
        places = entry.addresses
        return {split: [of[places[split]]] if split in places else [] for split in SPLITS}
    for file in found:
        file.header = entry.header
    return split_files(folder, found, {split: f"{PREFIX}(?:{names})" for split, names in entry.files.items()})


def fitting_fields(entry: TaskEntry, files: dict[str, list[RawFile]], id_field: str) -> Fields:
    """The columns that the task's train file has. Raises InputError, about the first way to call them, if none fit."""
    refused = None
    for columns in entry.columns:
        fields = Fields(columns.text_field, columns.pair_field, columns.label_field, id_field)
        try:
            check(files["train"][0], fields.wanted)
        except InputError as error:
            refused = refused or error
        else:
            return fields
    assert refused is not None, f"{entry.name} has no columns"
    raise refused


def as_published(entry: TaskEntry, examples: Sequence[Example]) -> list[Example]:
    """The examples with their labels as the entry names them; says where sizes are not the published ones.

    Raises InputError: a label that the task does not have.
    """
    found = [replace(example, label=entry.label(example.label, example.where)) for example in examples]
    entry.compare(Counter(example.split for example in found), len({example.label for example in found}))
    return found
