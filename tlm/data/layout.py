"""How documents become passages: the fields of a row, and where texts are cut."""

from dataclasses import dataclass

import pyarrow as pa

from tlm.data.passages import split
from tlm.data.reading.files import RawFile
from tlm.data.reading.records import Row, name_of, text_of
from tlm.errors import InputError

STAGED = pa.schema([("id", "string"), ("text", "string"), ("source", "string")])


@dataclass(frozen=True)
class Layout:
    """The fields of a row, and how documents are cut. Raises InputError: a setting out of range."""

    text_field: str
    id_field: str  # "": file name and line
    source_field: str  # "": file name
    words: int  # per passage
    overlap: int  # words shared by consecutive passages

    def __post_init__(self) -> None:
        if not self.text_field:
            raise InputError("text_field is empty; give the name of the field with the text")
        if self.words < 1:
            raise InputError(f"words is {self.words}; expected 1 or more words per passage")
        if not 0 <= self.overlap < self.words:
            raise InputError(f"overlap is {self.overlap}; expected 0 to {self.words - 1}, less than words")

    @property
    def fields(self) -> list[str]:
        """The fields needed of each row, the text's first."""
        return [name for name in (self.text_field, self.id_field, self.source_field) if name]

    def passages(self, file: RawFile, row: Row) -> list[tuple[str, str, str]]:
        """Return id, text and source of each passage of a row, as in the schema STAGED. Raises BadRow."""
        text = text_of(row.values, self.text_field)
        document = name_of(row.values, self.id_field, f"{file.name}:{row.line}")
        source = name_of(row.values, self.source_field, file.name)
        parts = split(text, self.words, self.overlap)
        if len(parts) == 1:
            return [(document, text, source)]
        return [(f"{document}#{number}", part, source) for number, part in enumerate(parts, start=1)]
