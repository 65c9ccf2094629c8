"""Large files in pieces: the rows, numbers and rejects of the whole, wherever it is cut."""

import json
import shutil
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import plan
from tlm.data.corpus.load import dedup_corpus, load_corpus, plan_corpus, publish_corpus, stage_corpus, write_corpus
from tlm.data.corpus.plan import can_be_cut, cut, sliced
from tlm.data.reading.files import RawFile, raw_files
from tlm.data.reading.readers import read
from tlm.errors import InputError

LINES = st.sampled_from(
    [b"", b" ", b'{"text": "one"}', b'{"text": "\xc3\xa9"}', b'{"text": "two"}\r', b"[1]", b'"x"', b"\xff", b"{"]
)


def opened(path):
    with raw_files([str(path)]) as (file,):
        return file


def rows(file):
    return list(read(file, ["text"]))


def in_pieces(file, size):
    found = cut(file, size)
    return found, [row for piece in sliced([file], {0: found}) for row in rows(piece)]


@settings(deadline=None)
@given(st.lists(LINES, max_size=12), st.booleans(), st.integers(1, 80))
def test_lines_are_those_of_the_whole_wherever_it_is_cut(tmp_path_factory, found, ended, size):
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    path.write_bytes(b"\n".join([b'\xef\xbb\xbf{"text": "first"}', *found]) + b"\n" * ended)
    file = opened(path)
    made, read_in_pieces = in_pieces(file, size)
    assert read_in_pieces == rows(file)
    assert [made[0].start, *(piece.stop for piece in made)] == [*(piece.start for piece in made), path.stat().st_size]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 2000))
def test_row_groups_are_those_of_the_whole(tmp_path_factory, groups, size):
    path = tmp_path_factory.mktemp("groups") / "a.parquet"
    number = iter(range(100))
    with pq.ParquetWriter(path, pa.schema([("id", "int64"), ("text", "string")])) as writer:
        for count in groups:
            own = [next(number) for _ in range(count)]
            writer.write_table(
                pa.table({"id": pa.array(own, "int64"), "text": pa.array([f"text {one}" for one in own], "string")})
            )
    file = opened(path)
    made, read_in_pieces = in_pieces(file, size)
    assert read_in_pieces == rows(file)
    assert [row.line for row in read_in_pieces] == list(range(1, sum(groups) + 1))
    assert made[-1].stop == pq.ParquetFile(path).num_row_groups


def test_a_large_remote_file_that_is_one_piece_is_read_again_after_its_download_was_dropped(tmp_path, monkeypatch):
    """As a parquet file with a single row group is, of any size."""
    path, copy = tmp_path / "a.parquet", tmp_path / "cache" / "a.parquet"
    copy.parent.mkdir()
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(500)]}), path)
    whole = load_corpus([str(path)], root=str(tmp_path / "whole"))

    def locate():
        return copy if copy.exists() else shutil.copyfile(path, copy)

    remote = RawFile(str(path), path.name, "parquet", locate=locate, size=path.stat().st_size, cache=copy.parent)
    monkeypatch.setattr("tlm.data.corpus.load.SMALLEST", 1000)
    monkeypatch.setattr("tlm.data.corpus.load.raw_files", lambda *_, **__: nullcontext([remote]))
    assert Artifact.open(load_corpus([str(path)], root=str(tmp_path / "one"))).content == Artifact.open(whole).content


def test_a_piece_needs_only_its_own_bytes(tmp_path):
    """Everything else may be a hole, as it is in what is downloaded of a remote file."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"text {number}" for number in range(90)]}), path, row_group_size=30)
    content = path.read_bytes()
    pieces_of_file = sliced([opened(path)], {0: cut(opened(path), 1)})
    assert len(pieces_of_file) == 3
    for number, piece in enumerate(pieces_of_file):
        sparse = bytearray(len(content))
        for start, stop in piece.piece.ranges:
            sparse[start:stop] = content[start:stop]
        assert sparse != content
        path.write_bytes(sparse)
        assert [row.values["text"] for row in rows(piece)] == [f"text {30 * number + one}" for one in range(30)]
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", True), ("a.json", True), ("a.parquet", True), ("a.jsonl.gz", False), ("a.csv", False),
        ("a.txt", False),
    ],
)  # fmt: skip
def test_what_can_be_cut(tmp_path, name, expected):
    (tmp_path / name).touch()
    assert can_be_cut(opened(tmp_path / name)) == expected


def test_a_line_that_is_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("tlm.data.corpus.plan.LONGEST_LINE", 100)
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' * 3 + "x" * 300 + "\n")
    with pytest.raises(InputError, match=r"a.jsonl:4: the line is longer than"):
        cut(opened(path), 60)


def corpus_files(folder):
    """A large file of lines, one of row groups, a small one; with texts that repeat within and across them."""
    folder.mkdir()
    lines = [json.dumps({"text": f"text {number % 70}"}) for number in range(200)]
    lines[3], lines[50] = "", '{"text": null}'
    (folder / "a.jsonl").write_text("\n".join(lines))
    table = pa.table({"text": [f"Text {number % 90}" for number in range(150)]})
    pq.write_table(table, folder / "b.parquet", row_group_size=40)
    (folder / "c.txt").write_text("text 5\n\na last one\n")
    return str(folder)


@pytest.mark.parametrize("least", [300, 700, 2000])
def test_pieces_give_the_corpus_of_whole_files(tmp_path, monkeypatch, least):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr("tlm.data.corpus.plan.SHARE", 10**6)
    folder = corpus_files(tmp_path / "in")
    one = Artifact.open(load_corpus([folder], root=str(tmp_path / "one")))
    items = plan_corpus([folder], pods=3, least=least, root=str(tmp_path / "several"))
    plan = Artifact.open(json.loads(items[0])["plan"]).details
    assert {number for number, *_ in plan["pieces"]} == {0, 1}
    assert len(plan["parts"]) > 3
    staged = [stage_corpus(pod) for pod in items]
    parts = [json.loads(path.read_text()) for path in (tmp_path / "several").glob("corpus-part/*/manifest.json")]
    assert all(part["details"]["passages"] for part in parts), "each pod reads pieces, and no whole file"
    several = Artifact.open(publish_corpus([write_corpus(pod) for pod in dedup_corpus(staged)]))
    assert (one.content, one.counts, one.manifest.files) == (several.content, several.counts, several.manifest.files)
    assert one.counts["rejected"] == {"null": 1}


def test_a_piece_that_changes_after_the_plan_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr("tlm.data.corpus.plan.SHARE", 10**6)
    folder = corpus_files(tmp_path / "in")
    (item,) = plan_corpus([folder], pods=1, least=1000, root=str(tmp_path / "store"))
    path = Path(folder) / "a.jsonl"
    path.write_text(path.read_text().replace("text 69", "text 00"))
    with pytest.raises(InputError, match=r"a.jsonl has changed since its corpus was planned"):
        stage_corpus(item)


@pytest.mark.parametrize("moment", ["check", "cut"])
def test_a_file_that_grows_while_it_is_planned_is_read_whole_or_refused(tmp_path, monkeypatch, moment):
    """Else a part of it would be found under the key of the whole, and nobody would miss the rest."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr("tlm.data.corpus.load.SMALLEST", 100)
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"text": "text {number}"}}\n' for number in range(20)))
    real = getattr(plan, moment)

    def growing(*arguments):
        found = real(*arguments)
        with path.open("a") as file:
            file.write('{"text": "more"}\n')
        return found

    monkeypatch.setattr(plan, moment, growing)
    if moment == "check":
        assert Artifact.open(load_corpus([str(path)], root=str(tmp_path))).counts["passages"] == 21
    else:
        with pytest.raises(InputError, match=r"log\.jsonl changed while it was read; repeat the step"):
            load_corpus([str(path)], root=str(tmp_path))
