"""What must hold for any bytes and any text: an answer or one sentence, no other exception, nothing lost.

The same functions are called with hypothesis' examples (test_fuzz.py) and with atheris' (fuzz_input.py).
"""

import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tlm.artifacts.artifact import Manifest
from tlm.data.passages import split
from tlm.data.reading.files import COMPRESSIONS, FORMATS, raw_files
from tlm.data.reading.readers import check, read
from tlm.data.reading.records import BadRow, Reject, name_of, text_of
from tlm.data.tasks.labelled import is_number, label_of
from tlm.errors import InputError, printable
from tlm.retrieval.search.analyzer import MAX_TOKEN_LENGTH, terms_of_text
from tlm.retrieval.search.query import MOST_TERMS, fit, keywords, make_queries

ENDINGS = [*FORMATS, *(format_ + compression for format_ in FORMATS for compression in COMPRESSIONS)]
READABLE = [ending for ending in ENDINGS if not (ending.startswith(".parquet") and ending != ".parquet")]
FOLDER = Path("/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir())


def reading(data: bytes, ending: str) -> int:
    """A file of these bytes is read to its end, or refused; each row gives values or a reason. How many rows."""
    with tempfile.NamedTemporaryFile(dir=FOLDER, suffix=ending) as file:
        file.write(data)
        file.flush()
        try:
            with raw_files([file.name]) as (raw,):
                check(raw, ["text"])
                rows = list(read(raw, ["text"]))
        except InputError as error:
            sentence(error)
            return 0
    assert rows
    assert [row.line for row in rows] == sorted({row.line for row in rows})
    for row in rows:
        if isinstance(row, Reject):
            assert row.reason
            assert isinstance(row.detail, str)
        else:
            for take in (text_of, name_of, label_of):
                try:
                    usable(take(row.values, "text"))
                except BadRow:
                    continue
    return len(rows)


def usable(text: str) -> None:
    """What came out of a row can be written, cut, searched for."""
    assert text.encode()
    assert text == " ".join(text.split())
    passages = split(text, 3)
    assert "".join(passages).replace(" ", "") == text.replace(" ", "")
    pa.array([text], pa.string()).validate(full=True)
    if is_number(text):
        float(text)


def manifest(data: bytes) -> None:
    """These bytes are a manifest that is written as it was read, or they are refused."""
    try:
        found = Manifest.from_bytes(data, "here/manifest.json")
    except InputError as error:
        sentence(error)
        return
    assert Manifest.from_bytes(found.to_bytes(), "there") == found
    for entry in found.files:
        assert (Path("/artifacts") / entry.name).resolve().is_relative_to("/artifacts")
        assert not Path(entry.name).is_absolute()


def querying(text: str) -> None:
    """Any text has terms and keywords, and becomes a query of no more than so many terms."""
    found = terms_of_text(text)
    lengths = [len(term.encode("utf-16-le", "surrogatepass")) // 2 for term in found]
    assert max(lengths, default=0) <= MAX_TOKEN_LENGTH
    assert min(lengths, default=1) > 0
    assert all(score > 0 for _, score in keywords(text))
    for kind in ("full", "rake"):
        queries, dropped = fit(make_queries([(0, text), (1, text)], kind), lambda: [text, "another"])
        assert [query.examples for query in queries] == [[0, 1]]
        left = set(terms_of_text(queries[0].text))
        assert len(left) <= MOST_TERMS
        assert [reason for _, reason, _ in dropped] == ["empty"] * (not left) + ["cut"] * (
            len(set(terms_of_text(make_queries([(0, text)], kind)[0].text))) > MOST_TERMS
        )


def sentence(error: InputError) -> None:
    """It says something, and can be shown as one line."""
    assert str(error)
    assert printable(str(error)).isprintable()


def parquet_of(values: list[str | None]) -> bytes:
    """A good parquet file, to be damaged."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": pa.array(values, pa.string())}), sink)
    return sink.getvalue().to_pybytes()
