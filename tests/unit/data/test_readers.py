"""Raw files: all formats give the same rows, bad rows are set aside. Bad files are in tests/faults/cases/files.py."""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.form import Corpus
from pipelines.tlm import predict
from tests.places import check_places, in_help, words_in
from tlm.data.corpus.load import load_corpus
from tlm.data.reading import zstd
from tlm.data.reading.files import FORMATS, raw_files
from tlm.data.reading.readers import _READERS, check, read
from tlm.data.reading.records import Record, Reject
from tlm.errors import InputError
from tlm.evaluation.labelling import label_names
from tlm.evaluation.predict.files import SHEETS, TABLES
from tlm.evaluation.predict.rows import SUFFIXES
from tlm.evaluation.score.imported import import_predictions

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
    parts = [zstd.compress(part) for part in (data[:half], b"", data[half:])]
    return parts[0] + skippable + parts[1] + parts[2]


def test_every_format_is_everywhere():
    formats, tables = {*FORMATS.values()}, {*FORMATS.values()} - {"txt"}
    places = {  # the formats that each needs, and those that it has
        "_READERS, tlm/data/reading/readers.py": (formats, {*_READERS}),
        "WRITERS, tests/unit/data/test_readers.py": (tables, {*WRITERS}),
        "help of paths, tlm/data/corpus/load.py": (formats, in_help(load_corpus, "paths")),
        "help of paths, pipelines/form.py": (formats, in_help(Corpus, "paths")),
        "help of predict_source, pipelines/tlm.py": (tables, words_in(predict().description)),
        "help of names, tlm/evaluation/labelling.py": (tables, in_help(label_names, "names")),
        "help of file, tlm/evaluation/score/imported.py": (tables, in_help(import_predictions, "file")),
        "TABLES, tlm/evaluation/predict/files.py": (FORMATS.keys() - {".md", ".rst"}, {*SUFFIXES, *TABLES}),
    }
    check_places(places)
    assert not FORMATS.keys() & {*SHEETS}, "take what can be read now out of SHEETS, tlm/evaluation/predict/files.py"


COMPRESSORS = {"": lambda data: data, ".gz": gzip_members, ".zst": zstd_frames}


def rows_of(*paths, fields=("text", "label")):
    with raw_files([str(path) for path in paths]) as files:
        return [row for file in files for row in read(file, fields)]


def values_of(*paths):
    return [{name: row.values[name] for name in ("text", "label")} for row in rows_of(*paths)]


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


@pytest.mark.parametrize("compression", COMPRESSORS)
def test_columns_of_csv_may_be_separated_by_semicolons(tmp_path, compression):
    """Excel writes them so where numbers have decimal commas."""
    plain = tmp_path / "rows.csv"
    as_csv(ROWS + MORE, plain, delimiter=";")
    path = tmp_path / f"packed.csv{compression}"
    path.write_bytes(COMPRESSORS[compression](b"\xef\xbb\xbf" + plain.read_bytes()))
    assert values_of(path) == ROWS + MORE


def test_parquet_types_of_strings_are_all_text(tmp_path):
    path = tmp_path / "x.parquet"
    texts = pa.array(["a", "b", "a"])
    pq.write_table(pa.table({"text": texts.dictionary_encode(), "label": texts.cast(pa.large_string())}), path)
    assert values_of(path) == [{"text": t, "label": t} for t in "aba"]


def class_labels(rows, features):
    """A table as `datasets` of Hugging Face writes it (as seen in files of versions 2 to 5)."""
    return pa.Table.from_pylist(rows).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )


def test_classes_of_hugging_face_have_their_names(tmp_path):
    path = tmp_path / "x.parquet"
    names = {"names": ["negative", "positive"], "_type": "ClassLabel"}
    rows = [{"text": "a", "label": 1, "all": [0, 1]}, {"text": "b", "label": 0, "all": []}, {"text": "c", "label": -1}]
    features = {"label": names, "all": {"feature": names, "_type": "List"}, "more": [names], "id": {"n": {}}}
    pq.write_table(class_labels(rows, {"text": {"dtype": "string", "_type": "Value"}, **features}), path)
    read = [row.values for row in rows_of(path, fields=["text", "label", "all"])]
    assert [row["label"] for row in read] == ["positive", "negative", None]
    assert [row["all"] for row in read] == [["negative", "positive"], [], None]
    assert values_of(path)[0] == {"text": "a", "label": "positive"}


@pytest.mark.parametrize("written", ["", "no json", "[]", '{"info": {"features": {"label": {"_type": "ClassLabel"}}}}'])
def test_numbers_of_classes_without_names_stay(tmp_path, written):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["a"], "label": [1]}).replace_schema_metadata({"huggingface": written}), path)
    assert values_of(path) == [{"text": "a", "label": 1}]


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


JSONL_REJECTS = [
    (b'{"text": ', "invalid JSON", "Expecting value"),
    (b'{"text": "a"} {}', "invalid JSON", "Extra data"),
    (b"[" * 100_000, "invalid JSON", "while decoding a JSON array"),  # recursion, or a stack overflow on Python 3.14
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


def test_a_field_that_the_first_objects_lack_is_found(tmp_path):
    rows = [{"text": "a"}] * 30 + [{"text": "b", "terms": "MIT"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with raw_files([str(tmp_path / "rows.jsonl")]) as (file,):
        check(file, ["text", "terms"])
        with pytest.raises(InputError, match=r"no field 'term'; it has 'text', 'terms'; did you mean 'terms'"):
            check(file, ["text", "term"])


def test_the_first_key_that_is_there_twice_is_named_in_linear_time(tmp_path):
    path = tmp_path / "x.jsonl"
    names = [str(number) for number in range(200_000)]
    names[100_000:100_002] = ["7", "9"]
    path.write_text("{" + ", ".join(f'"{name}": 1' for name in names) + "}")
    (bad,) = rows_of(path)
    assert (bad.reason, bad.detail) == ("duplicate key", "an object has two values for '7'")


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


def naive(count, texts=()):
    """A table whose writer quotes nothing; `texts` replaces the texts of some rows, by number from 0."""
    return "text,label\n" + "".join(f"{dict(texts).get(row, f'text {row}')},{'ab'[row % 2]}\n" for row in range(count))


SWALLOWED = {
    "closed before a letter": ({20: '"He said', 80: 'she "left'}, "malformed csv", "',' expected after '\"'"),
    "closed in a longer row": ({20: '"He said', 80: 'said",she'}, "ragged row", "3 values, the header has 2"),
    "closed in a shorter row": ({20: '"He said', 80: 'she said"\nx'}, "ragged row", "1 values, the header has 2"),
    "closed as if it were one text": ({20: '"He said', 80: 'she said"'}, "malformed csv", "61 lines that are rows"),
    "not UTF-8": ({20: '"He said', 50: "caf\udce9", 80: 'she said"'}, "malformed csv", "61 lines that are rows"),
}


@pytest.mark.parametrize(("texts", "reason", "detail"), SWALLOWED.values(), ids=SWALLOWED)
def test_a_stray_quote_counts_as_all_the_lines_that_it_swallows(tmp_path, texts, reason, detail):
    path = tmp_path / "x.csv"
    path.write_bytes(naive(100, texts).encode(errors="surrogateescape"))
    found = rows_of(path)
    (bad,) = [row for row in found if isinstance(row, Reject)]
    assert (bad.line, bad.reason, bad.lines) == (22, reason, 61)
    assert bad.detail.startswith("up to line 82: ")
    assert detail in bad.detail
    following = [row.line for row in found if row.line > 22]
    assert [row.line for row in found] == [*range(2, 23), *following]
    assert following[-1] == path.read_bytes().count(b"\n")
    assert sum(row.lines if isinstance(row, Reject) else 1 for row in found) == path.read_bytes().count(b"\n") - 1


LONG_TEXTS = {
    "prose": "Dear all,\n\nthe meeting, as you know,\nis on Monday.\n" * 30,
    "lines with a comma each": "Berlin, Germany\n" * 40 + "Paris, France",
    "few lines": "red, blue\n" * 4 + "green",
    "a table of another width": "1,2,3,4\n" * 40,
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
@pytest.mark.parametrize("order", [("text", "label"), ("label", "text")])
def test_a_quoted_value_of_many_lines_is_text(tmp_path, text, order):
    rows = [{name: {"text": text, "label": "a"}[name] for name in order}, *[dict.fromkeys(order, "b")] * 3]
    as_csv(rows, tmp_path / "x.csv")
    assert [row.values for row in rows_of(tmp_path / "x.csv")] == rows


def test_a_long_record_between_text_and_rows_is_warned_of(tmp_path, capsys):
    """Its first line has one comma more than a row, as prose may have."""
    path = tmp_path / "x.csv"
    path.write_text(naive(100, {20: '"oh, what a film', 80: 'she said"'}))
    assert len(rows_of(path)) == 40
    expected = "x.csv: 1 long records, the first in lines 22 to 82, were read as texts"
    assert expected in capsys.readouterr().err


def test_short_records_that_may_be_rows_are_warned_of_if_most_are(tmp_path, capsys):
    path = tmp_path / "x.csv"
    quotes = {row: text for first in (10, 20, 30) for row, text in ((first, '"He said'), (first + 2, 'she said"'))}
    path.write_text(naive(40, quotes))
    assert len(rows_of(path)) == 34
    expected = (
        "x.csv: 3 of 3 records of several lines, the first at line 12, may be rows that a quote out of place joins"
    )
    assert expected in capsys.readouterr().err
    as_csv([{"text": text, "label": "a"} for text in ["one, two\nthree"] * 3 + ["one\ntwo"] * 3], path)
    assert len(rows_of(path)) == 6
    assert capsys.readouterr().err == ""


def test_a_quote_in_tsv_swallows_nothing(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text(naive(100, {20: '"He said', 80: 'she said"'}).replace(",", "\t"))
    assert [row.line for row in rows_of(path) if isinstance(row, Record)] == list(range(2, 102))


def test_rows_of_csv_are_numbered_by_their_first_lines(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('text,label\n"one\ntwo",x\n\nthree,y\n')
    assert [row.line for row in rows_of(path)] == [2, 5]


def test_bad_tsv_rows_are_set_aside(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(b'text\tlabel\na\n"b\tc\n\xff\td\ne\t"f\n\xff\n\n')
    assert [(row.line, row[1]) for row in rows_of(path)] == [
        (2, "ragged row"),
        (3, {"text": '"b', "label": "c"}),
        (4, "invalid UTF-8"),
        (5, {"text": "e", "label": '"f'}),
        (6, "invalid UTF-8"),
    ]


MANY_LINES = ["one\ntwo", "one\n\ntwo and\nthree", 'say ""hi""\nnow']


@pytest.mark.parametrize("text", MANY_LINES)
@pytest.mark.parametrize("order", [("text", "label"), ("label", "text"), ("n", "text", "label")])
def test_quoted_values_of_several_lines_are_rejected_whole_in_tsv(tmp_path, text, order):
    """As pandas and spreadsheets write them; none of their lines is taken for a row, and none of the others is lost."""
    path = tmp_path / "x.tsv"
    rows = [{"text": f"good {n}", "label": "a", "n": n} for n in range(4)]
    rows[1]["text"] = text
    with path.open("w", newline="") as file:
        csv.DictWriter(file, order, delimiter="\t", extrasaction="ignore", lineterminator="\n").writerows(
            [dict(zip(order, order, strict=True)), *rows]
        )
    found = rows_of(path)
    assert [row.values["text"] for row in found if isinstance(row, Record)] == ["good 0", "good 2", "good 3"]
    assert {row.reason for row in found if isinstance(row, Reject)} == {"quoted lines"}


@pytest.mark.parametrize("above", ["sep=;\n", "\r\n\n"])
def test_hints_for_excel_and_empty_lines_are_no_header(tmp_path, above):
    path = tmp_path / "x.csv"
    path.write_text(f"{above}text;label\none, two;a\n")
    assert [row.values for row in rows_of(path)] == [{"text": "one, two", "label": "a"}]


def test_parquet_strings_that_are_not_utf8_are_set_aside(tmp_path):
    path = tmp_path / "x.parquet"
    broken = pa.array([b"good", b"\xff", b"too"]).view(pa.string())
    pq.write_table(pa.table({"text": broken}), path)
    rows = rows_of(path, fields=["text"])
    assert [(row.line, row[1]) for row in rows] == [(1, {"text": "good"}), (2, "invalid UTF-8"), (3, {"text": "too"})]


LONG = "".join(json.dumps({"text": f"{number} {number * 7919}"}) + "\n" for number in range(20_000)).encode()


def test_the_tally_ends_at_the_size_of_the_file(tmp_path):
    for name, pack in {"x.jsonl": bytes, "x.jsonl.gz": gzip.compress, "x.jsonl.zst": zstd.compress}.items():
        (tmp_path / name).write_bytes(pack(LONG))
    as_parquet(ROWS, tmp_path / "x.parquet")
    with raw_files([str(tmp_path)]) as files:
        for file in files:
            list(read(file, ["text"]))
            assert file.bytes_read == file.size > 0


def test_zstd_of_a_large_window_is_read(tmp_path):
    parameters = zstd.CompressionParameter
    options = {parameters.window_log: 28, parameters.enable_long_distance_matching: 1}
    with zstd.ZstdFile(tmp_path / "x.jsonl.zst", "w", options=options) as file:
        file.write(LONG)
    assert len(rows_of(tmp_path / "x.jsonl.zst")) == 20_000
