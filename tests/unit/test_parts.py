"""A corpus in parts: byte for byte the same as in one, whatever the parts and however many work on them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlm.artifacts.artifact import Artifact
from tlm.data.corpus import load_corpus
from tlm.data.parts import plan, shards
from tlm.data.parts.plan import parts_of
from tlm.data.reading.files import RawFile
from tlm.data.shards import Shards
from tlm.errors import InputError

ON_THE_WAY = ("corpus-part", "corpus-bucket", "corpus-shards")


def files(folder, *texts_of_files):
    folder.mkdir(parents=True)
    for number, texts in enumerate(texts_of_files):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{number:02d}.jsonl").write_text(rows)
    return str(folder)


def load(folder, root, **values):
    return Artifact.open(load_corpus([folder], root=str(root), **values), "corpus")


def same(one, other):
    assert (one.content, one.counts, one.manifest.key) == (other.content, other.counts, other.manifest.key)
    assert one.manifest.files == other.manifest.files
    assert {entry.logical: one.verified(entry).read_bytes() for entry in one.entries()} == {
        entry.logical: other.verified(entry).read_bytes() for entry in other.entries()
    }


def left(root):
    return [path for kind in ON_THE_WAY for path in (root / kind).rglob("*") if path.is_file()]


@pytest.fixture
def in_bytes(monkeypatch):
    """Parts are planned in bytes instead of MiB."""
    monkeypatch.setattr(plan, "MIB", 1)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("count", [2, 5, 7])
def test_parts_give_the_corpus_of_one(tmp_path, monkeypatch, in_bytes, count, processes):
    """With repeated texts within and across parts, a part whose texts are all repeated, and rejected rows in two."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", f"{processes}")
    long = " ".join(f"w{number}" for number in range(30))
    texts = [[f"text {number % 11} of {file // 2}" for number in range(40)] for file in range(5)]
    texts += [[text.upper() for text in texts[0]], [long, "", "text 3 of 1", None, "last"]]
    texts[2].append("")
    folder = files(tmp_path / "in", *texts)
    sizes = [path.stat().st_size for path in sorted(Path(folder).iterdir())]
    mib = {2: sum(sizes[:4]), 5: max(sum(sizes[:2]), sum(sizes[2:4])), 7: 1}[count]
    one = load(folder, tmp_path / "one", words=10, part_mib=sum(sizes))
    several = load(folder, tmp_path / "several", words=10, part_mib=mib)
    same(one, several)
    assert several.counts["duplicates"] > 100
    assert several.counts["rejected"] == {"empty": 2, "null": 1}
    assert not left(tmp_path / "several")


SIZES = st.lists(st.integers(0, 25), min_size=2, max_size=6)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SIZES, st.integers(3, 60))
def test_shards_may_end_before_at_and_after_a_part(tmp_path_factory, monkeypatch, in_bytes, sizes, different):
    """Shards of ten rows."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr(shards, "SHARD_ROWS", 10)
    monkeypatch.setattr(Shards.__init__, "__defaults__", (2, 5))
    tmp_path = tmp_path_factory.mktemp("shards")
    numbers = iter(range(1000))
    folder = files(tmp_path / "in", *([f"t {next(numbers) % different}" for _ in range(1 + size)] for size in sizes))
    same(load(folder, tmp_path / "one", part_mib=10**6), load(folder, tmp_path / "several", part_mib=1))


@pytest.mark.parametrize(
    ("sizes", "mib", "expected"),
    [
        ([5], 1, [(0, 1)]),
        ([3, 3, 3], 6, [(0, 2), (2, 3)]),
        ([9, 1, 1], 5, [(0, 1), (1, 3)]),
        ([1, 9, 1], 5, [(0, 1), (1, 2), (2, 3)]),
        ([0, 0, 0], 5, [(0, 3)]),
    ],
)
def test_parts_are_as_large_as_allowed_and_hold_whole_files(in_bytes, sizes, mib, expected):
    def located():
        raise AssertionError

    listed = [
        RawFile(f"{number}.jsonl", f"{number}.jsonl", "jsonl", "", located, size) for number, size in enumerate(sizes)
    ]
    assert parts_of(listed, mib) == expected


def test_compressed_files_count_as_the_text_in_them_and_hub_data_sets_alone(in_bytes):
    def located():
        raise AssertionError

    packed = RawFile("a.jsonl.gz", "a.jsonl.gz", "jsonl", "gz", located, 10)
    table = RawFile("b.parquet", "b.parquet", "parquet", "", located, 10)
    hub = RawFile("hf://x", "x", "hub")
    assert parts_of([packed, table], 50) == [(0, 2)]
    assert parts_of([packed, table], 49) == [(0, 1), (1, 2)]
    assert parts_of([packed, hub, table], 50) == [(0, 1), (1, 2), (2, 3)]


def test_rejected_rows_are_judged_over_all_parts(tmp_path, in_bytes):
    many = [[*(f"good {file} {number}" for number in range(20)), *[None] * 4] for file in range(3)]
    folder = files(tmp_path / "in", *many)
    with pytest.raises(InputError, match=r"12 of 72 rows cannot be used \(12 null\).*00.jsonl:21"):
        load(folder, tmp_path / "root", part_mib=1)
    assert load(folder, tmp_path / "root", part_mib=1, max_rejected=12).counts["rejected"] == {"null": 12}


def test_a_bad_file_ends_all_processes_with_its_sentence(tmp_path, in_bytes):
    folder = files(tmp_path / "in", ["a"], ["b"], ["c"])
    with (Path(folder) / "01.jsonl").open("a") as file:
        file.write("x" * (65 << 20))
    with pytest.raises(InputError, match=r"01.jsonl:2: the line is longer than 64 MiB"):
        load(folder, tmp_path / "root", part_mib=1)


def test_a_part_size_below_1_is_refused(tmp_path):
    with pytest.raises(InputError, match="part_mib is 0; expected 1 or more"):
        load(files(tmp_path / "in", ["a"]), tmp_path / "root", part_mib=0)


def test_killed_at_any_moment_finished_parts_are_not_repeated(tmp_path):
    count = 6
    texts = [
        [f"text {number % 9000} of {file // 3} " + "word " * 40 for number in range(12_000)] for file in range(count)
    ]
    folder, root = files(tmp_path / "in", *texts), tmp_path / "root"
    one = load(folder, tmp_path / "one")
    command = f"from tlm.data.corpus import load_corpus; load_corpus([{folder!r}], root={str(root)!r}, part_mib=2)"
    before: dict[Path, int] = {}
    for kind in ON_THE_WAY:
        process = subprocess.Popen([sys.executable, "-c", command], start_new_session=True)
        deadline = time.monotonic() + 120
        while len(list(root.glob(f"{kind}/*/manifest.json"))) < 2:
            assert process.poll() is None, f"it ended before it could be killed among {kind}"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert not any(root.glob("corpus/*/manifest.json"))
        made = {path: path.stat().st_mtime_ns for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/manifest.json")}
        assert before.items() <= made.items()  # nothing was made again
        before = made
    same(one, load(folder, root, part_mib=2))
    assert not left(root)
