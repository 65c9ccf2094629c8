"""Files, columns and labels of a registered task."""

from collections.abc import Sequence
from contextlib import suppress

from tlm.data.reading.files import RawFile
from tlm.data.reading.readers import check
from tlm.data.registry import TaskEntry
from tlm.data.tasks.splits import SPLITS, split_files
from tlm.errors import InputError
from tlm.options import Fields

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
    """Return the first of the task's column sets that its train file has; if it has none of them, the first."""
    known = [Fields(**columns, id_field=id_field) for columns in entry.columns]
    for fields in known:
        with suppress(InputError):
            check(files["train"][0], fields.wanted)
            return fields
    return known[0]
