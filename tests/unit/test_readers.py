"""Raw files: all formats give the same rows, bad rows are set aside, bad files are refused in one sentence."""

import csv
import gzip
import io
import json
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tlm.data.files import raw_files
from tlm.data.readers import check, read
from tlm.data.records import BadRow, Reject, Rejects, name_of, text_of
from tlm.errors import InputError

ROWS = [
    {"text": "Plain words, with a comma", "label": "a"},
    {"text": 'He said "no" and left', "label": "b"},
    {"text": '"quoted whole"', "label": "b"},
    {"text": "Zürich – 東京 – naïve 🙂", "label": "c d"},
    {"text": "x" * 5000, "label": "7"},
]
MORE = [{"text": "two\nlines\r\nthree", "label": "a"}]


def as_jsonl(rows, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def as_csv(rows, path, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], **options)
        writer.writeheader()
        writer.writerows(rows)


def as_tsv(rows, path):
    as_csv(rows, path, delimiter="\t")


def as_parquet(rows, path):
    pq.write_table(pa.Table.from_pylist(rows), path)


WRITERS = {"jsonl": as_jsonl, "json": as_jsonl, "csv": as_csv, "tsv": as_tsv, "parquet": as_parquet}


def gzip_members(data):
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])


def zstd_frames(data):
    half = len(data) // 2
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    parts = [zstandard.ZstdCompressor().compress(part) for part in (data[:half], b"", data[half:])]
    return parts[0] + skippable + parts[1] + parts[2]


COMPRESSORS = {"": lambda data: data, ".gz": gzip_members, ".zst": zstd_frames}


def rows_of(*paths, fields=("text", "label")):
    with raw_files([str(path) for path in paths]) as files:
        return [row for file in files for row in read(file, fields)]


def values_of(*paths):
    return [{name: row.values[name] for name in ("text", "label")} for row in rows_of(*paths)]


def refused(*paths, fields=("text",)):
    """The sentence with which a file is refused, at the first look or when it is read."""
    with pytest.raises(InputError) as caught:
        checked_and_read(paths, fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def checked_and_read(paths, fields):
    with raw_files([str(path) for path in paths]) as files:
        for file in files:
            check(file, fields)
            list(read(file, fields))


@pytest.mark.parametrize(
    ("format_", "compression"),
    [
        (format_, compression)
        for format_ in WRITERS
        for compression in COMPRESSORS
        if not (format_ == "parquet" and compression)
    ],
)
def test_all_formats_give_the_same_rows(tmp_path, format_, compression):
    rows = ROWS if format_ == "tsv" else ROWS + MORE
    plain = tmp_path / f"rows.{format_}"
    WRITERS[format_](rows, plain)
    path = tmp_path / f"packed.{format_}{compression}"
    path.write_bytes(COMPRESSORS[compression](plain.read_bytes()))
    assert values_of(path) == rows


def test_parquet_types_of_strings_are_all_text(tmp_path):
    path = tmp_path / "x.parquet"
    texts = pa.array(["a", "b", "a"])
    pq.write_table(pa.table({"text": texts.dictionary_encode(), "label": texts.cast(pa.large_string())}), path)
    assert values_of(path) == [{"text": t, "label": t} for t in "aba"]


@pytest.mark.parametrize("format_", ["jsonl", "csv", "tsv"])
def test_byte_order_marks_and_windows_line_ends_are_no_part_of_the_text(tmp_path, format_):
    path = tmp_path / f"x.{format_}"
    WRITERS[format_](ROWS, path)
    unix = path.read_bytes().replace(b"\r\n", b"\n")
    path.write_bytes(b"\xef\xbb\xbf" + unix.replace(b"\n", b"\r\n"))
    assert values_of(path) == ROWS


def test_paragraphs_of_plain_text_are_documents(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbf\n\nfirst line\r\nsecond line\r\n \t\r\nnext\n\n\n\nlast, without an end")
    assert [(row.line, row.values["text"].split()) for row in rows_of(path, fields=["text"])] == [
        (3, ["first", "line", "second", "line"]),
        (6, ["next"]),
        (10, ["last,", "without", "an", "end"]),
    ]


def test_a_huge_paragraph_is_given_in_parts(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("word " * 100_000 + "\n" + "more\n" * 400_000)
    parts = [row.values["text"] for row in rows_of(path, fields=["text"])]
    assert len(parts) == 3
    assert sum(len(part.split()) for part in parts) == 500_000


def test_a_line_of_ten_megabytes_is_a_row(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    text = "ten megabytes " * 750_000
    path.write_bytes(gzip.compress(json.dumps({"text": text, "label": ""}).encode(), 1))
    assert values_of(path) == [{"text": text, "label": ""}]


JSONL_REJECTS = [
    (b'{"text": ', "invalid JSON", "Expecting value"),
    (b'{"text": "a"} {}', "invalid JSON", "Extra data"),
    (b"[" * 100_000, "invalid JSON", "recursion"),
    (b"9" * 5000, "invalid JSON", "digits"),
    (b'{"text": "a\xff"}', "invalid UTF-8", "0xff"),
    (b'["text"]', "not an object", "list"),
    (b"null", "not an object", "NoneType"),
]


@pytest.mark.parametrize(("line", "reason", "detail"), JSONL_REJECTS)
def test_bad_json_lines_are_set_aside_with_place_and_reason(tmp_path, line, reason, detail):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"text": "good"}\n\n' + line + b'\n{"text": "good"}')
    first, bad, last = rows_of(path)
    assert (first.values, last.values, last.line) == ({"text": "good"}, {"text": "good"}, 4)
    assert isinstance(bad, Reject)
    assert (bad.line, bad.reason) == (3, reason)
    assert detail in bad.detail


CSV_REJECTS = [
    (b"one", 3, "ragged row"),
    (b"one,two,three", 3, "ragged row"),
    (b'"a"b,c', 3, "malformed csv"),
    (b'"a\n\xff",c', 3, "invalid UTF-8"),
]


@pytest.mark.parametrize(("line", "number", "reason"), CSV_REJECTS)
def test_bad_csv_rows_are_set_aside_with_place_and_reason(tmp_path, line, number, reason):
    path = tmp_path / "x.csv"
    path.write_bytes(b"text,label\na,b\n" + line + b"\nc,d\n")
    first, bad, last = rows_of(path)
    assert [first.values["text"], last.values["text"]] == ["a", "c"]
    assert isinstance(bad, Reject)
    assert (bad.line, bad.reason) == (number, reason)


def test_rows_of_csv_are_numbered_by_their_first_lines(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"one\ntwo",x\n\nthree,y\n')
    assert [row.line for row in rows_of(path)] == [2, 5]


def test_bad_tsv_rows_are_set_aside(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(b'text\tlabel\na\n"b\tc\n\xff\td\n\n')
    assert [(row.line, row[1]) for row in rows_of(path)] == [
        (2, "ragged row"),
        (3, {"text": '"b', "label": "c"}),
        (4, "invalid UTF-8"),
    ]


def test_parquet_strings_that_are_not_utf8_are_set_aside(tmp_path):
    path = tmp_path / "x.parquet"
    broken = pa.array([b"good", b"\xff", b"too"]).view(pa.string())
    pq.write_table(pa.table({"text": broken}), path)
    rows = rows_of(path, fields=["text"])
    assert [(row.line, row[1]) for row in rows] == [(1, {"text": "good"}), (2, "invalid UTF-8"), (3, {"text": "too"})]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "missing field"),
        ({"text": None}, "null"),
        ({"text": 3}, "not a string"),
        ({"text": ["a"]}, "not a string"),
        ({"text": float("nan")}, "not a string"),
        ({"text": "\ud800"}, "lone surrogate"),
        ({"text": " \0\n"}, "empty"),
    ],
)
def test_values_that_are_no_text_have_a_reason(value, reason):
    with pytest.raises(BadRow) as caught:
        text_of(value, "text")
    assert caught.value.reason == reason


def test_ids_and_sources_are_strings_or_whole_numbers():
    assert name_of({"id": 12}, "id") == "12"
    assert name_of({"id": " x\ty "}, "id") == "x y"
    for value in (True, 1.5, [1]):
        with pytest.raises(BadRow, match="not a string"):
            name_of({"id": value}, "id")


def truncated(data):
    return data[: len(data) // 2]


LONG = "".join(json.dumps({"text": f"{number} {number * 7919}"}) + "\n" for number in range(20_000)).encode()
BAD_FILES = {
    "empty.jsonl": (b"", "is empty"),
    "blank.jsonl": (b"\n\n", "is empty"),
    "empty.csv": (b"", "is empty"),
    "header.csv": (b"text,label\n", "is empty"),
    "empty.txt": (b"\n", "is empty"),
    "empty.gz.jsonl.gz": (gzip.compress(b""), "is empty"),
    "cut.jsonl.gz": (truncated(gzip.compress(LONG)), "cannot be read"),
    "cut.jsonl.zst": (truncated(zstandard.compress(LONG)), "cannot be read"),
    "cut2.jsonl.zst": (zstandard.compress(LONG)[:-1], "cannot be read"),
    "tail.jsonl.gz": (gzip.compress(LONG) + b"garbage", "cannot be read"),
    "tail.jsonl.zst": (zstandard.compress(LONG) + b"garbage", "cannot be read"),
    "no.jsonl.gz": (LONG, "cannot be read"),
    "no.jsonl.zst": (LONG, "cannot be read"),
    "no.parquet": (LONG, "cannot be read"),
    "x.xlsx": (LONG, "extension is not known; expected .jsonl"),
    "x.parquet.gz": (LONG, "extension is not known"),
    "array.json": (b'[{"text": "a"},\n{"text": "b"}]', "invalid JSON"),
    "utf16.jsonl": ('{"text": "a"}\n'.encode("utf-16"), "invalid UTF-8"),
    "typo.jsonl": (b'{"txt": "a", "n": 1}\n', r"no field 'text'; it has 'txt', 'n'; did you mean 'txt'\?"),
    "typo.csv": (b"txt,n\na,1\n", r"no field 'text'; it has 'txt', 'n'; did you mean 'txt'\?"),
    "far.tsv": (b"one\ttwo\na\tb\n", "no field 'text'; it has 'one', 'two'$"),
    "twice.csv": (b"text,text\na,b\n", "has 2 columns named 'text'"),
    "quote.csv": (b'text,n\nfine,1\n"never closed,1\n' + b"more,2\n" * 9, "quote.csv:3: a quote opened here"),
    "header.tsv": (b"te\xffxt\tn\na\tb\n", "expected the names of the columns"),
    "long.jsonl": (b"x" * (64 << 20) + b"\n", "longer than 64 MiB"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_in_one_sentence(tmp_path, name):
    data, expected = BAD_FILES[name]
    (tmp_path / name).write_bytes(data)
    sentence = refused(tmp_path / name)
    assert name in sentence
    assert re.search(expected, sentence), sentence


def test_a_parquet_without_the_column_or_without_rows_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"texts": ["a"]}), path)
    assert "no field 'text'; it has 'texts'; did you mean 'texts'?" in refused(path)
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    assert "is empty" in refused(path)


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "x.jsonl").symlink_to(tmp_path / "gone.jsonl")
    assert "x.jsonl does not exist; check the path" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "pipe.jsonl is no regular file" in refused(tmp_path / "pipe.jsonl")


def test_paths_that_mean_nothing_are_refused_in_one_sentence(tmp_path):
    (tmp_path / "corpus.jsonl").write_bytes(LONG)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".x.jsonl").write_bytes(LONG)
    assert "does not exist; did you mean 'corpus.jsonl'?" in refused(tmp_path / "corpsu.jsonl")
    assert "does not exist; check the path" in refused(tmp_path / "other" / "corpus.jsonl")
    assert "matches no file" in refused(tmp_path / "*.csv")
    assert "hidden has no file that can be read; expected .jsonl" in refused(tmp_path / "hidden")
    assert "scheme 'gs' is not known" in refused("gs://bucket/x.jsonl")
    with pytest.raises(InputError, match="no path was given"), raw_files([]):
        pass


def test_hub_data_sets_are_an_extra():
    try:
        import datasets  # noqa: F401
    except ImportError:
        assert refused("hf://owner/name:train").endswith("install it with the extra 'hub'")
    else:
        assert "is no address of a Hub data set" in refused("hf://a/b/c/d")


def test_folders_and_globs_give_each_file_once_in_the_order_of_their_paths(tmp_path, capsys):
    for name in ("b/2.jsonl", "b/10.csv", "a/z.txt", "_temporary/x.jsonl", "b/readme.md", ".git/y.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"text\nx\n")
    with raw_files([f"{tmp_path}/b/*.jsonl", str(tmp_path), f"file://{tmp_path}/a/z.txt"]) as files:
        assert [file.where for file in files] == [f"{tmp_path}/{name}" for name in ("a/z.txt", "b/10.csv", "b/2.jsonl")]
        assert [file.name for file in files] == ["z.txt", "10.csv", "2.jsonl"]
    assert "readme.md" in capsys.readouterr().err


def test_a_path_may_be_written_in_any_way(tmp_path, monkeypatch):
    for name in ("data/x.jsonl", "data/.y.jsonl", "_under/z.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LONG)
    monkeypatch.chdir(tmp_path / "data")
    for path in (".", "./", "../data", "x.jsonl", "./x.jsonl", f"{tmp_path}/_under/"):
        with raw_files([path]) as files:
            assert [file.name for file in files] == ["z.jsonl" if "_under" in path else "x.jsonl"]
    with raw_files(["./x.jsonl", "x.jsonl"]) as files:
        assert len(files) == 1


def test_a_file_that_changes_meanwhile_is_noticed(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(LONG)
    with raw_files([str(path)]) as (file,):
        file.digest()
        file.check_unchanged()
        path.write_bytes(LONG + LONG)
        with pytest.raises(InputError, match="was changed while it was read"):
            file.check_unchanged()


def test_the_tally_ends_at_the_size_of_the_file(tmp_path):
    for name, pack in {"x.jsonl": bytes, "x.jsonl.gz": gzip.compress, "x.jsonl.zst": zstandard.compress}.items():
        (tmp_path / name).write_bytes(pack(LONG))
    as_parquet(ROWS, tmp_path / "x.parquet")
    with raw_files([str(tmp_path)]) as files:
        for file in files:
            list(read(file, ["text"]))
            assert file.tally.bytes == file.size > 0


@pytest.mark.parametrize(
    ("most", "bad", "read_", "stops"),
    [(10, 10, 20, False), (10, 11, 20, True), (10, 11, 11_000, False), (0, 1, 999, True), (0, 1, 1000, False)],
)
def test_a_step_stops_over_ten_rows_or_a_thousandth(most, bad, read_, stops):
    rejects = Rejects(most)
    for line in range(bad):
        rejects.add("x.csv", line + 1, "null", "field 'text' is null")
    if stops:
        with pytest.raises(InputError, match=rf"^{bad} of {read_} rows .*x\.csv:1: null, field 'text' is null"):
            rejects.check(read_)
    else:
        rejects.check(read_)


def test_rejects_are_kept_with_place_reason_and_what_was_found(tmp_path):
    rejects = Rejects(10)
    rejects.add("a.jsonl", 3, "invalid JSON", "x\n" + "y" * 1000)
    rejects.add("b.csv", 5, "null", "\ud800")
    assert rejects.write(tmp_path / "rejected.parquet") == 2
    rows = pq.read_table(tmp_path / "rejected.parquet").to_pylist()
    assert [(row["file"], row["line"], row["reason"]) for row in rows] == [
        ("a.jsonl", 3, "invalid JSON"),
        ("b.csv", 5, "null"),
    ]
    assert rows[1]["detail"] == "\\ud800"
    assert rejects.by_reason() == {"invalid JSON": 1, "null": 1}
    assert Rejects(10).write(tmp_path / "none.parquet") == 0


def test_zstd_of_a_large_window_is_read(tmp_path):
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, enable_ldm=True)
    packed = io.BytesIO()
    with zstandard.ZstdCompressor(compression_params=parameters).stream_writer(packed, closefd=False) as writer:
        writer.write(LONG)
    (tmp_path / "x.jsonl.zst").write_bytes(packed.getvalue())
    assert len(rows_of(tmp_path / "x.jsonl.zst")) == 20_000
