"""Readers, manifests and queries on what hypothesis thinks of."""

import contextlib
import gzip
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.properties import READABLE, manifest, parquet_of, querying, reading
from tlm.artifacts.artifact import Manifest, content_digest
from tlm.artifacts.stores.store import signed_json
from tlm.data.reading import zstd

PIECES = st.sampled_from(
    [b'{"text": "a"}', b'{"text": ', b"text", b",", b"\t", b'"', b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xef\xbb\xbf",
     b"[", b"]", b"}", b"\\ud800", b"NaN", b"1e999", b"null", b'"text"', b":", b" ", "é我".encode(), b"\xed\xa0\x80"]
)  # fmt: skip
FILES = st.lists(PIECES | st.binary(max_size=8), max_size=40).map(b"".join)
PACKED = {".gz": gzip.compress, ".zst": zstd.compress}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
GOOD = Manifest(
    kind="corpus", key="0" * 24, content=content_digest([], {"x": 1}), step="s", version=1, settings={}, inputs={},
    counts={}, details={"x": 1}, files=[],
)  # fmt: skip
LETTERS = st.sampled_from("aZ09_ .,:;'\"-\n\0é\u0301\u0327我のカกא🙂👩\u200d\ufe0f🇩🏽\u202e\u00adßİΣ𐀀\ud800\udc00’#⃣")
TEXTS = st.text(LETTERS | st.characters(), max_size=300)


@settings(max_examples=200, deadline=None)
@given(FILES, st.sampled_from(READABLE))
def test_any_file_is_read_or_refused(data, ending):
    pack = PACKED.get(ending[ending.rfind(".") :], bytes)
    reading(pack(data), ending)
    reading(data, ending)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.none() | st.text(max_size=5), max_size=5), st.data())
def test_a_damaged_parquet_or_packed_file_is_read_or_refused(values, data):
    lines = "".join(json.dumps({"text": value}) + "\n" for value in values).encode()
    for good, ending in ((parquet_of(values), ".parquet"), *((PACKED[e](lines), f".jsonl{e}") for e in PACKED)):
        damaged = bytearray(good)
        place = data.draw(st.integers(0, len(good) - 1))
        damaged[place] ^= data.draw(st.integers(1, 255))
        reading(bytes(damaged), ending)
        reading(good[:place], ending)


def test_a_damaged_footer_of_parquet_never_ends_the_process():
    """Arrow throws at some of these in calls where pyarrow does not catch."""
    good = parquet_of(["a", None])
    footer = len(good) - 8 - int.from_bytes(good[-8:-4], "little")
    for place in range(footer, len(good)):
        for byte in (0x00, 0x0C, 0xFF):
            reading(good[:place] + bytes([byte]) + good[place + 1 :], ".parquet")


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*Manifest.model_fields, "more"]), JSON, max_size=3), st.binary(max_size=30))
def test_any_manifest_is_one_or_is_refused(changes, noise):
    manifest(noise)
    manifest(json.dumps({**GOOD.model_dump(), **changes}).encode())
    with contextlib.suppress(ValueError):  # what JSON has no form for cannot be signed
        manifest(signed_json({**GOOD.model_dump(), **changes}))


@given(st.text(max_size=20) | st.sampled_from(["../x", "/x", "a/../../b", ".", "a//b", "a\n", "C:\\x", "a/./b"]))
def test_any_file_name_of_a_manifest_stays_inside_or_is_refused(name):
    files = [{"name": name, "size": 1, "sha256": "0" * 64, "rows": None}]
    with contextlib.suppress(ValueError):
        manifest(signed_json({**GOOD.model_dump(), "files": files}))


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_any_text_is_a_query(text):
    querying(text)
    querying(text * 20)


@settings(deadline=None)
@given(st.integers(900, 1500), st.text(LETTERS, max_size=3), st.sampled_from([" ", ", ", "\n", "的"]))
def test_any_long_text_is_cut(count, ending, between):
    querying(between.join(f"w{number}{ending}" for number in range(count)))
