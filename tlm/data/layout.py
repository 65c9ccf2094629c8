"""How documents become passages: the fields of a row, and where texts are cut."""

import pyarrow as pa

from tlm.data.passages import split
from tlm.data.reading.files import RawFile
from tlm.data.reading.records import Row, name_of, text_of
from tlm.options import Layout

STAGED = pa.schema([("id", "string"), ("text", "string"), ("source", "string")])


def passages(layout: Layout, file: RawFile, row: Row) -> list[tuple[str, str, str]]:
    """Return id, text and source of each passage of a row, as in the schema STAGED. Raises BadRow."""
    text = text_of(row.values, layout.text_field)
    document = name_of(row.values, layout.id_field, f"{file.name}:{row.line}")
    source = name_of(row.values, layout.source_field, file.name)
    parts = split(text, layout.words, layout.overlap)
    if len(parts) == 1:
        return [(document, text, source)]
    return [(f"{document}#{number}", part, source) for number, part in enumerate(parts, start=1)]
