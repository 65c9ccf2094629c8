"""Bad files: cut off, of another kind, too large, not to be read, not there."""

import gzip
import os
import shlex
import time
from pathlib import Path

import pyarrow as pa

from tests.faults.case import Case, Content
from tests.faults.making import lines, objects, parquet, squeezed, table, task
from tlm.data.reading import zstd

ROWS = lines(*(f"{number} {number * 7919}" for number in range(5000))).encode()
WHOLE = parquet({"text": ["a", "b"] * 500})
DAMAGED = "check that it is complete and that you may read it"
KINDS = "despite its extension; convert it to UTF-8 text or fix the extension"
CUT = "Compressed file ended before the end-of-stream marker was reached"
LONG_TWIN = pa.DictionaryArray.from_arrays(pa.array([0] * 300), ["x" * 1_000_000])
DAYS = pa.array([2**31 - 1, 0], pa.date32())
NANOSECONDS = pa.array([1, 10**18], pa.timestamp("ns"))


def load(name: str, data: Content, expected: object, **more: object) -> Case:
    """A corpus of one file."""
    return Case([f"load-corpus {shlex.quote(name)}"], expected, {name: data}, **more)  # type: ignore[arg-type]


def damaged(name: str, data: Content, why: str) -> Case:
    """A file that is not whole."""
    return load(name, data, f"{name} cannot be read: {why}; {DAMAGED}")


def link(to: str) -> Content:
    """Makes a link."""
    return lambda path: path.symlink_to(to)


def closed(data: str | None) -> Content:
    """Makes a file, or without data a folder with one in it, that nobody may read."""

    def make(path: Path) -> None:
        if data is None:
            path.mkdir()
            (path / "x.jsonl").write_text(lines("a"))
        else:
            path.write_text(data)
        path.chmod(0)

    return make


def append() -> None:
    """Write to the file as soon as it is being read."""
    deadline = time.monotonic() + 30
    while not list(Path("root/.scratch").glob("*/staging-*")) and time.monotonic() < deadline:
        time.sleep(0.001)
    with Path("c.jsonl").open("a") as file:
        file.write(lines("too late"))


CIRCLES = {"in/c.jsonl": lines("a"), "in/one": link("."), "in/two": link("../in")}

CASES = {
    "an empty file": load("c.jsonl", b"", "c.jsonl is empty; expected rows with the fields text"),
    "empty lines only": load("c.jsonl", b"\n\n", "c.jsonl is empty; expected rows with the fields text"),
    "an empty CSV": load("c.csv", b"", "c.csv is empty; expected rows with the fields text"),
    "an empty text": load("c.txt", b"\n", "c.txt is empty; expected rows with the fields text"),
    "a header only": load("c.csv", "text,n\n", "c.csv is empty; expected rows with the fields text"),
    "an empty member": load("c.jsonl.gz", gzip.compress(b""), "c.jsonl.gz is empty"),
    "a TSV with semicolons": load(
        "c.tsv",
        "id;text\n1;a\n",
        "c.tsv has no field 'text'; it has 'id;text'; its columns seem to be separated by ';': rename it to .csv",
    ),
    "a CSV with quotes, tabs and commas": load(
        "c.csv",
        '"id"\t"text, whole"\n"1"\t"a"\n',
        "c.csv:1: malformed csv, ',' expected after '\"'; expected the column names with commas between them",
    ),
    "a CSV with tabs": load(
        "c.csv",
        "id\ttext\n1\ta\n",
        "c.csv has no field 'text'; it has 'id\\ttext'; its columns seem to be separated by tabs: rename it to .tsv",
    ),
    "a TSV with commas": load(
        "c.tsv",
        "id,text\n1,a\n",
        "c.tsv has no field 'text'; it has 'id,text'; its columns seem to be separated by ',': rename it to .csv",
    ),
    "a CSV with bars": load(
        "c.csv",
        "id|text\n1|a\n",
        "c.csv has no field 'text'; it has 'id|text'; its columns seem to be separated by '|': save it with commas",
    ),
    "an unclosed quote": load(
        "c.csv", 'text,n\nfine,1\n"open,1\n' + "more,2\n" * 9, "c.csv:3: a quote is opened here and never closed"
    ),
    "too many ragged rows": load(
        "c.tsv",
        "text\tn\n" + "a\n" * 11,
        "c.tsv:2: ragged row, 1 values, the header has 2; none of the first rows is readable tsv",
    ),
    "\\r alone in CSV": load(
        "c.csv",
        "text,n\ra,1\r",
        "c.csv: lines end with \\r only (classic Mac OS); convert the line ends to \\n (tr '\\r' '\\n')",
    ),
    "\\r alone in TSV": load("c.tsv", "text\tn\ra\t1\r", "c.tsv: lines end with \\r only (classic Mac OS)"),
    "\\r alone in JSON lines": load("c.jsonl", '{"text": "a"}\r{"text": "b"}\r', "c.jsonl: lines end with \\r only"),
    "\\r alone in plain text": load("c.txt", "one\r\rtwo\r", "c.txt: lines end with \\r only"),
    "\\r within a field": load(
        "c.csv", 'text,n\n"a\rb",1\na\rb,2\n', {"documents": 1, "rejected": {"malformed csv": 1}}, texts=["a b"]
    ),
    "an array instead of lines": load(
        "c.json",
        '[\n{"text": "a"},\n{"text": "b"}\n]\n',
        "c.json begins with a JSON array; expected one object per line (jq -c '.[]')",
    ),
    "an array in one line": load("c.json", '[{"text": "a"}]', "c.json begins with a JSON array"),
    "an object over several lines": load(
        "c.json",
        '{\n"text": "a"\n}\n',
        "c.json begins with an object of several lines; expected one object per line (jq -c .)",
    ),
    "a duplicate key": load(
        "c.jsonl",
        lines("a") + '{"text": "b", "text": "c"}\n',
        {"documents": 1, "rejected": {"duplicate key": 1}},
        texts=["a"],
    ),
    "a duplicate column": load("c.csv", "text,text\na,b\n", "c.csv has 2 columns named 'text'; rename all but one"),
    "truncated gzip": damaged("c.jsonl.gz", gzip.compress(ROWS)[:-9], CUT),
    "truncated zstd": damaged("c.jsonl.zst", zstd.compress(ROWS)[:-1], CUT),
    "garbage after gzip": damaged("c.jsonl.gz", gzip.compress(ROWS) + b"x", "Not a gzipped file (b'x')"),
    "garbage after zstd": damaged(
        "c.jsonl.zst", zstd.compress(ROWS) + b"garbage", "Unable to decompress Zstandard data: Unknown frame descriptor"
    ),
    "gzip without its ending": load("c.jsonl", gzip.compress(ROWS), f"c.jsonl is gzip data, {KINDS}"),
    "gzip twice": load("c.jsonl.gz", gzip.compress(gzip.compress(ROWS)), f"c.jsonl.gz is gzip data, {KINDS}"),
    "zstd without its ending": load("c.txt", zstd.compress(ROWS), f"c.txt is zstd data, {KINDS}"),
    "a spreadsheet called CSV": load("c.csv", b"PK\x03\x04" + bytes(range(256)), "c.csv is a zip archive or a spread"),
    "parquet called JSON lines": load("c.jsonl", WHOLE, f"c.jsonl is parquet, {KINDS}"),
    "JSON lines called gzip": damaged("c.jsonl.gz", ROWS, "Not a gzipped file (b'{\"')"),
    "JSON lines called parquet": damaged(
        "c.parquet",
        ROWS,
        "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
    ),
    "JSON lines called CSV": load(
        "c.csv", lines("a, b"), "c.csv has no field 'text'; it has '{\"text\": \"a', ' b\"}'"
    ),
    "JSON lines called text": load(
        "c.txt", lines("a"), "c.txt looks like JSON lines, not plain text; give it the extension .jsonl"
    ),
    "CSV called JSON lines": load("c.jsonl", "text,n\na,1\n", "none of the first rows is readable jsonl"),
    "an unknown extension": load("c.xlsx", b"x", "c.xlsx: unknown extension; expected .jsonl, .ndjson,"),
    "packed parquet": load("c.parquet.gz", gzip.compress(WHOLE), "c.parquet.gz: unknown extension; expected"),
    "no field of that name": load("c.tsv", "one\ttwo\na\tb\n", "c.tsv has no field 'text'; it has 'one', 'two'"),
    "a decompression bomb of lines": load(
        "c.jsonl.zst",
        squeezed([(lines("a").encode(), 1), (b'{"x": "%s"}\n' % (b"x" * 1_000_000), 300)], "zst"),
        "c.jsonl.zst expands to more than 250 times its size, so it looks like a decompression bomb",
    ),
    "parquet without the column": load(
        "c.parquet", parquet({"texts": ["a"]}), "c.parquet has no field 'text'; it has 'texts'; did you mean 'texts'?"
    ),
    "parquet of numbers": load(
        "c.parquet", parquet({"text": [1, 2]}), "2 of 2 rows cannot be used (2 not a string), the first at c.parquet:1"
    ),
    "parquet of bytes": load("c.parquet", parquet({"text": [b"a"]}), "field 'text' is of type bytes: b'a'"),
    "parquet of null": load("c.parquet", parquet({"text": pa.nulls(3)}), "3 of 3 rows cannot be used (3 null)"),
    "parquet of lists": load("c.parquet", parquet({"text": [["a"]]}), "field 'text' is a list: ['a']"),
    "parquet with dates beyond the calendar": Case(
        ["load-corpus c.parquet --id-field id"],
        "(1 not a string, 1 unreadable value)",
        {"c.parquet": parquet({"text": ["a", "b"], "id": DAYS})},
    ),
    "parquet with nanoseconds": Case(
        ["load-task c.parquet"],
        "(1 not a label, 1 unreadable value)",
        {"c.parquet": parquet({"text": ["a", "b"], "label": NANOSECONDS})},
    ),
    "parquet without row groups": load(
        "c.parquet", parquet({"text": pa.array([], pa.string())}), "c.parquet is empty; expected rows with the fields"
    ),
    "parquet with a false length": load(
        "c.parquet", WHOLE[:-8] + b"\xff\xff\xff\x7fPAR1", "smaller than the size reported by footer's"
    ),
    "parquet with a damaged page": load("c.parquet", WHOLE[:8] + b"\xff" * 8 + WHOLE[16:], "c.parquet cannot be read"),
    "parquet with one long value in many rows": Case(
        ["load-corpus c.parquet --id-field id"],
        "c.parquet expands to more than 250 times its size",
        {"c.parquet": parquet({"text": ["a"] + [None] * 299, "id": LONG_TWIN}, compression="zstd")},
    ),
    "shards of which one lacks the field": Case(
        ["load-corpus in"],
        "in/2.parquet has no field 'text'; it has 'txt'; did you mean 'txt'?",
        {"in/1.parquet": WHOLE, "in/2.parquet": parquet({"txt": ["a"]})},
    ),
    "a link to itself": load("c.jsonl", link("c.jsonl"), "c.jsonl is a broken or circular symbolic link"),
    "a link to nothing": Case(
        ["load-corpus in"],
        "in/c.jsonl is a broken or circular symbolic link; fix or remove it",
        {"in/c.jsonl": link("gone.jsonl")},
    ),
    "circles of links": Case(
        ["load-corpus in"],
        {"documents": 1},
        CIRCLES,
        says="in: skipped symbolic links to folders: one, two",
        texts=["a"],
    ),
    "a pattern into circles of links": Case(["load-corpus 'in/**/*.jsonl'"], {"documents": 1}, CIRCLES, texts=["a"]),
    "a folder called like a file": load("c.jsonl", Path.mkdir, "c.jsonl has no readable file; expected .jsonl"),
    "a FIFO": load("c.jsonl", os.mkfifo, "c.jsonl is not a regular file; expected a file or a folder"),
    "a FIFO in a folder": Case(["load-corpus in"], "in/c.jsonl is not a regular file", {"in/c.jsonl": os.mkfifo}),
    "a file that may not be read": load(
        "c.jsonl", closed(lines("a")), f"c.jsonl cannot be read: Permission denied; {DAMAGED}", nobody=True
    ),
    "a folder that may not be read": Case(
        ["load-corpus in"],
        "in/closed cannot be listed: Permission denied; check its permissions",
        {"in/c.jsonl": lines("a"), "in/closed": closed(None)},
        nobody=True,
    ),
    "a file that changes while it is read": load(
        "c.jsonl",
        ROWS * 20,
        "c.jsonl changed while it was read; repeat the step when nothing writes to it",
        meanwhile=append,
    ),
    "a file that does not exist": Case(
        ["load-corpus corpsu.jsonl"],
        "corpsu.jsonl does not exist; did you mean 'corpus.jsonl'?",
        {"corpus.jsonl": lines("a")},
    ),
    "a glob that matches nothing": Case(["load-corpus '*.csv'"], "*.csv matches no file; check the pattern"),
    "a glob with ** that matches nothing": Case(["load-corpus 'in/**/*.csv'"], "in/**/*.csv matches no file", CIRCLES),
    "an empty path": Case(["load-corpus ''"], "a path is missing or empty; give files, folders, globs"),
    "an empty path of a task": Case(["load-task ''"], "a path is missing or empty"),
    "a name with a line break": load(
        "c\nd\x1b[31m.jsonl", objects({"txt": "a"}), "c\\nd\\x1b[31m.jsonl has no field 'text'; it has 'txt'"
    ),
    "a name that is not UTF-8": Case(
        ["load-corpus in"],
        "in/\\udcff.jsonl: the name is not valid UTF-8; rename the file or its folder",
        {os.fsdecode(b"in/\xff.jsonl"): lines("a")},
    ),
    "two files for one split": Case(
        ["load-task task"],
        "task has both task/dev.jsonl and task/valid.csv; expected one dev file, or several of one folder "
        "and format, called dev-1, dev-2 and so on",
        {**task([("x", "a"), ("y", "b")]), "task/valid.csv": table(("text", "label"), ("z", "a"))},
    ),
}
