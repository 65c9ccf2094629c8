"""The corpus: each text once, in order, whatever the sizes of shards and buckets, whoever is killed on the way."""

import signal
import subprocess
import sys
import tempfile
import time
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny import write_rows as write
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Recipe, produce
from tlm.cli.command import flat
from tlm.data.corpus.load import load_corpus
from tlm.data.corpus.plan import STAGED
from tlm.data.corpus.staging import distinct, repeats_in, stage
from tlm.data.passages import passages, rows_at, shard_passages, shards, write_shards
from tlm.data.text import fold, normalise
from tlm.errors import InputError


def load(paths, root, **values):
    return Artifact.open(flat(load_corpus)([str(path) for path in paths], root=str(root), **values), "corpus")


def rows_of(corpus):
    return pa.Table.from_batches(passages(corpus)).to_pylist()


def test_documents_become_passages_and_each_text_is_kept_once(tmp_path):
    long = " ".join(f"w{number}" for number in range(25))
    path = write(
        tmp_path / "in.jsonl",
        [{"text": "First  text"}, {"text": long}, {"text": "FIRST text\n"}, {"text": ""}, {"text": "Last"}],
    )
    corpus = load([path], tmp_path, words=10)
    assert rows_of(corpus) == [
        {"doc": 0, "id": "in.jsonl:1", "text": "First text", "source": "in.jsonl"},
        {"doc": 1, "id": "in.jsonl:2#1", "text": " ".join(long.split()[:10]), "source": "in.jsonl"},
        {"doc": 2, "id": "in.jsonl:2#2", "text": " ".join(long.split()[10:20]), "source": "in.jsonl"},
        {"doc": 3, "id": "in.jsonl:2#3", "text": " ".join(long.split()[20:]), "source": "in.jsonl"},
        {"doc": 4, "id": "in.jsonl:5", "text": "Last", "source": "in.jsonl"},
    ]
    assert corpus.counts == {"read": 5, "documents": 4, "passages": 5, "duplicates": 1, "rejected": {"empty": 1}}
    assert corpus.details == {"passages": 5}
    assert pq.read_table(corpus.path("rejected.parquet")).to_pylist() == [
        {"file": "in.jsonl", "line": 4, "reason": "empty", "detail": "field 'text' has no text"}
    ]


def test_ids_and_sources_come_from_their_fields_and_ids_may_repeat(tmp_path):
    rows = [{"body": "one", "key": 7, "from": "web"}, {"body": "two two", "key": 7, "from": "book"}]
    corpus = load([write(tmp_path / "in.jsonl", rows)], tmp_path, text_field="body", id_field="key",
                  source_field="from", words=1)  # fmt: skip
    assert [(row["id"], row["text"], row["source"]) for row in rows_of(corpus)] == [
        ("7", "one", "web"),
        ("7#1", "two", "book"),
    ]
    assert corpus.counts["duplicates"] == 1


def test_overlapping_passages_share_words(tmp_path):
    corpus = load([write(tmp_path / "in.jsonl", [{"text": "a b c d e f"}])], tmp_path, words=3, overlap=1)
    assert [row["text"] for row in rows_of(corpus)] == ["a b c", "c d e", "e f"]


def test_some_columns_are_read_alone(tmp_path):
    corpus = load([write(tmp_path / "in.jsonl", [{"text": "a"}])], tmp_path)
    assert [batch.to_pydict() for batch in passages(corpus, ["doc", "text"])] == [{"doc": [0], "text": ["a"]}]


def test_a_shard_whose_copy_another_process_has_just_removed_is_read_again(tmp_path, monkeypatch):
    """Of two processes that read a corpus on S3, one is done with a shard when the other has verified its copy."""
    corpus = load([write(tmp_path / "in.jsonl", [{"text": "a"}])], tmp_path)
    (shard,) = map(corpus.verified, shards(corpus))
    found = [tmp_path / "removed.parquet", shard]
    monkeypatch.setattr(Artifact, "verified", lambda self, entry: found.pop(0))
    assert [row["text"] for row in rows_of(corpus)] == ["a"]
    assert not found


TEXTS = st.lists(st.text(st.sampled_from("aAé bB\t"), max_size=5).map(normalise).filter(bool), max_size=60)


def published(texts, at_once, buckets):
    """The rows that stay, whatever number of them is read at a time."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [(f"id{number}", text, "s") for number, text in enumerate(texts)]
        path = Path(folder).joinpath
        tables, repeats = stage(path(), rows, STAGED, buckets), repeats_in(path())
        kept = len(texts) - len(repeats)
        found = []
        for start in range(0, kept, at_once):
            for table in distinct(tables, path, repeats, start, start + at_once):
                found += table.to_pylist()
        assert found == [row for table in distinct(tables, path, repeats) for row in table.to_pylist()]
        return found


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.integers(1, 9), st.sampled_from([1, 2, 64]), st.integers(1, 61))
def test_the_first_of_equal_texts_stays_whatever_the_sizes(texts, at_once, buckets, portion):
    first: dict[str, int] = {}
    for number, text in enumerate(texts):
        first.setdefault(fold(text), number)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tlm.data.corpus.staging.ROWS", portion)
        rows = published(texts, at_once, buckets)
    assert [(row["id"], row["text"]) for row in rows] == [(f"id{number}", texts[number]) for number in first.values()]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 7), st.integers(1, 3))
def test_shards_hold_the_same_bytes_however_rows_come(portions, group_rows, groups):
    numbers = pa.table({"source": [str(number % 3) for number in range(sum(portions))]})

    def sharded(sizes):
        with tempfile.TemporaryDirectory() as folder:
            ends = zip(accumulate(sizes), sizes, strict=True)
            rows = write_shards(Path(folder), "x", (numbers.slice(end - size, size) for end, size in ends))
            assert all(count == groups * group_rows for count in list(rows.values())[:-1])
            assert sum(rows.values()) == len(numbers)
            return [(name, (Path(folder) / name).read_bytes()) for name in sorted(rows)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tlm.data.passages.GROUPS", groups)
        patch.setattr("tlm.data.passages.GROUP_ROWS", group_rows)
        assert sharded(portions) == sharded([sum(portions)])


def test_more_passages_than_a_shard_has_are_numbered_through(tmp_path):
    count = 100_005
    corpus = load([write(tmp_path / "in.jsonl", ({"text": f"t {number}"} for number in range(count)))], tmp_path)
    assert [entry.rows for entry in corpus.entries("passages-*")] == [100_000, 5]
    assert [batch["doc"][0].as_py() for batch in passages(corpus)] == list(range(0, count, 10_000))


@pytest.mark.parametrize("several", [3, 4])
def test_copies_of_shards_are_removed_where_there_are_several(tmp_path, monkeypatch, several):
    """A corpus on S3 may be larger than the disk; a small one is read again by the next step."""
    removed = []
    for name, value in {"GROUPS": 1, "GROUP_ROWS": 2, "SEVERAL": several}.items():
        monkeypatch.setattr(f"tlm.data.passages.{name}", value)
    corpus = load([write(tmp_path / "in.jsonl", [{"text": f"text {number}"} for number in range(5)])], tmp_path)
    monkeypatch.setattr("tlm.artifacts.stores.local.LocalStore.forget", lambda _, name: removed.append(Path(name).name))
    (batch,) = shard_passages(corpus.uri, 1, ["text"])
    assert batch["text"].to_pylist() == ["text 2", "text 3"]
    assert removed == [entry.name for entry in corpus.entries("passages-00001*")][: several == 3]


def test_equal_files_give_equal_content_wherever_they_lie(tmp_path):
    rows = [{"text": f"text number {number % 70}"} for number in range(100)]
    one = write(tmp_path / "x" / "in.jsonl", rows)
    other = write(tmp_path / "y" / "deeper" / "in.jsonl", rows)
    first, second = load([one], tmp_path / "root1"), load([tmp_path / "y"], tmp_path / "root2")
    assert (first.manifest.key, first.content) == (second.manifest.key, second.content)
    assert other in [str(path) for path in (tmp_path / "y").rglob("*.jsonl")]


def test_what_changes_the_result_changes_the_key_and_nothing_else(tmp_path):
    path = write(tmp_path / "in.jsonl", [{"text": "a b c", "id": "x"}])
    keys = {load([path], tmp_path, **values).manifest.key for values in ({}, {"words": 50}, {"overlap": 1},
                                                                             {"id_field": "id"})}  # fmt: skip
    assert len(keys) == 4
    assert load([path], tmp_path, max_rejected=99).manifest.key in keys
    Path(path).rename(tmp_path / "renamed.jsonl")
    assert load([tmp_path / "renamed.jsonl"], tmp_path).manifest.key not in keys


def test_a_finished_corpus_is_found(tmp_path, capsys):
    path = write(tmp_path / "in.jsonl", [{"text": "a"}])
    first = load_corpus([path], root=str(tmp_path))
    assert load_corpus([path], root=str(tmp_path)) == first
    assert load_corpus(path, root=str(tmp_path)) == first  # what the command line takes as one path is one here too
    assert "already there" in capsys.readouterr().err


def test_nothing_of_the_staging_is_published(tmp_path):
    corpus = load([write(tmp_path / "in.jsonl", [{"text": "a"}])], tmp_path)
    assert [entry.logical for entry in corpus.entries()] == ["passages-00000.parquet", "rejected.parquet"]


def test_bad_input_is_refused_and_leaves_nothing(tmp_path):
    path = write(tmp_path / "in.jsonl", [{"text": "x", "ident": 1}])
    with pytest.raises(InputError, match=r"no field 'idnt'.*"):
        load([path], tmp_path / "root", id_field="idnt")
    assert not [path for path in (tmp_path / "root").rglob("*") if path.is_file()]


def test_hopeless_files_are_not_read_to_their_end(tmp_path):
    good, bad = [{"text": f"good {number}"} for number in range(30)], [{"text": None}] * 60_000
    with pytest.raises(InputError, match=r"9970 of 10000 rows cannot be used \(9970 null\).*in.jsonl:31"):
        load([write(tmp_path / "in.jsonl", good + bad)], tmp_path)


def test_killed_in_the_middle_and_run_again_it_is_the_same(tmp_path):
    path = write(tmp_path / "in.jsonl", ({"text": f"text {number % 40_000} of many"} for number in range(60_000)))
    undisturbed, root = load([path], tmp_path / "undisturbed"), tmp_path / "root"
    command = f"from tlm.data.corpus.load import load_corpus; load_corpus([{path!r}], root={str(root)!r})"
    process = subprocess.Popen([sys.executable, "-c", command])
    wait_for(lambda: any(root.glob(".scratch/*/staging-*/staged-*.parquet")), process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not any(root.glob("corpus/*/manifest.json"))
    assert load([path], root).content == undisturbed.content
    assert list((root / ".scratch").iterdir()) == []


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    def peak(count):
        path = write(tmp_path / f"in{count}.jsonl", ({"text": f"{number} " + "word " * 60} for number in range(count)))
        command = (
            "from tlm.data.corpus.load import load_corpus; from tlm.artifacts.spending import peak_memory; "
            f"load_corpus([{path!r}], root={str(tmp_path / str(count))!r}); "
            "print(peak_memory())"
        )
        return int(subprocess.run([sys.executable, "-c", command], check=True, capture_output=True).stdout)

    assert peak(90_000) < 1.2 * peak(30_000)


def test_more_than_100_000_shards_stay_in_the_order_of_their_numbers(tmp_path, monkeypatch):
    """As if 99,998 had been written before: their numbers grow from five digits to six."""
    monkeypatch.setattr("tlm.data.passages.GROUPS", 1)
    monkeypatch.setattr("tlm.data.passages.GROUP_ROWS", 2)

    def write(draft):
        tables = (pa.table({"doc": [doc], "text": [f"text {doc}"]}) for doc in range(9))
        draft.rows = write_shards(draft.folder, "passages", tables, first=99_998)

    corpus = Artifact.open(produce(Recipe("corpus", "many-shards", 1, {}), str(tmp_path), write))
    assert [row["doc"] for row in rows_of(corpus)] == list(range(9))
    found = rows_at(corpus, "passages-*", [1, 4, 8])
    assert [(ordinal, row["doc"]) for ordinal, row in found.items()] == [(1, 1), (4, 4), (8, 8)]
    numbers = [99_998, 99_999, 100_000, 100_001, 100_002]
    assert [entry.logical for entry in corpus.entries()] == [f"passages-{number}.parquet" for number in numbers]
