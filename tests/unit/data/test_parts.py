"""A corpus in parts: byte for byte the same as in one, whatever the parts and however many work on them."""

import gzip
import itertools
import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tlm.artifacts.artifact import Artifact, remove
from tlm.cli.command import flat
from tlm.data.corpus.load import (
    dedup_corpus,
    load_corpus,
    make,
    plan_corpus,
    publish,
    publish_corpus,
    stage_corpus,
    write_corpus,
)
from tlm.data.corpus.plan import can_be_cut, make_plan, part_size, parts_of
from tlm.data.reading.files import RawFile, raw_files
from tlm.errors import InputError, Interrupted
from tlm.settings.options import Layout


@pytest.fixture(autouse=True)
def whole_files(monkeypatch):
    """However small a part may be here; how large files are cut is in test_pieces.py."""
    monkeypatch.setattr("tlm.data.corpus.plan.can_be_cut", lambda file: False)


ON_THE_WAY = ("corpus-part", "corpus-bucket", "corpus-shards")


def files(folder, *texts_of_files):
    folder.mkdir(parents=True)
    for number, texts in enumerate(texts_of_files):
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (folder / f"{number:02d}.jsonl").write_text(rows)
    return str(folder)


def load(folder, root, size=10**9, **values):
    """Loaded in parts of at most so many bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tlm.data.corpus.load.part_size", lambda files, least: size)
        return Artifact.open(flat(load_corpus)([folder], root=str(root), **values), "corpus")


def same(one, other):
    assert (one.content, one.counts, one.manifest.key) == (other.content, other.counts, other.manifest.key)
    assert one.manifest.files == other.manifest.files
    assert {entry.logical: one.verified(entry).read_bytes() for entry in one.entries()} == {
        entry.logical: other.verified(entry).read_bytes() for entry in other.entries()
    }


def left(root):
    return [path for kind in ON_THE_WAY for path in (root / kind).rglob("*") if path.is_file()]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("count", [2, 5, 7])
def test_parts_give_the_corpus_of_one(tmp_path, monkeypatch, count, processes):
    """With repeated texts within and across parts, a part whose texts are all repeated, and rejected rows in two."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", f"{processes}")
    long = " ".join(f"w{number}" for number in range(30))
    texts = [[f"text {number % 11} of {file // 2}" for number in range(40)] for file in range(5)]
    texts += [[text.upper() for text in texts[0]], [long, "", "text 3 of 1", None, "last"]]
    texts[2].append("")
    folder = files(tmp_path / "in", *texts)
    sizes = [path.stat().st_size for path in sorted(Path(folder).iterdir())]
    size = {2: sum(sizes[:4]), 5: max(sum(sizes[:2]), sum(sizes[2:4])), 7: 1}[count]
    one = load(folder, tmp_path / "one", words=10, size=sum(sizes))
    several = load(folder, tmp_path / "several", words=10, size=size)
    same(one, several)
    assert several.counts["duplicates"] > 100
    assert several.counts["rejected"] == {"empty": 2, "null": 1}
    assert not left(tmp_path / "several")


SIZES = st.lists(st.integers(0, 25), min_size=2, max_size=6)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(SIZES, st.integers(3, 60))
def test_shards_may_end_before_at_and_after_a_part(tmp_path_factory, monkeypatch, sizes, different):
    """Shards of ten rows."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr("tlm.data.corpus.load.SHARD_ROWS", 10)
    monkeypatch.setattr("tlm.data.passages.GROUPS", 2)
    monkeypatch.setattr("tlm.data.passages.GROUP_ROWS", 5)
    tmp_path = tmp_path_factory.mktemp("shards")
    numbers = iter(range(1000))
    folder = files(tmp_path / "in", *([f"t {next(numbers) % different}" for _ in range(1 + size)] for size in sizes))
    same(load(folder, tmp_path / "one", size=10**6), load(folder, tmp_path / "several", size=1))


@pytest.mark.parametrize(
    ("sizes", "size", "expected"),
    [
        ([5], 1, [(0, 1)]), ([3, 3, 3], 6, [(0, 2), (2, 3)]), ([9, 1, 1], 5, [(0, 1), (1, 3)]),
        ([1, 9, 1], 5, [(0, 1), (1, 2), (2, 3)]), ([0, 0, 0], 5, [(0, 3)]),
    ],
)  # fmt: skip
def test_parts_are_as_large_as_allowed_and_hold_whole_files(sizes, size, expected):
    def located():
        raise AssertionError

    listed = [
        RawFile(f"{number}.jsonl", f"{number}.jsonl", "jsonl", "", located, size=size)
        for number, size in enumerate(sizes)
    ]
    assert parts_of(listed, size) == expected


def test_compressed_files_count_as_the_text_in_them_and_hub_data_sets_alone():
    def located():
        raise AssertionError

    packed = RawFile("a.jsonl.gz", "a.jsonl.gz", "jsonl", "gz", located, size=10)
    table = RawFile("b.parquet", "b.parquet", "parquet", "", located, size=10)
    hub = RawFile("hf://x", "x", "hub")
    assert parts_of([packed, table], 50) == [(0, 2)]
    assert parts_of([packed, table], 49) == [(0, 1), (1, 2)]
    assert parts_of([packed, hub, table], 50) == [(0, 1), (1, 2), (2, 3)]


def test_what_a_stray_quote_swallows_is_counted_in_a_part_too(tmp_path):
    folder = files(tmp_path / "in", [f"text {number}" for number in range(40)])
    rows = [f"row {number},x" for number in range(60)]
    rows[5], rows[18] = '"row 5,x', 'row 18",x'
    (tmp_path / "in" / "99.csv").write_text("\n".join(["text,label", *rows, ""]))
    with pytest.raises(InputError, match=r"^14 of 100 rows cannot be used \(14 malformed csv\)"):
        load(folder, tmp_path / "root", size=1)
    one, several = (load(folder, tmp_path / f"{size}", size=size, max_rejected=14) for size in (10**9, 1))
    same(one, several)
    assert (several.counts["read"], several.counts["documents"]) == (100, 86)


def test_rejected_rows_are_judged_over_all_parts(tmp_path):
    many = [[*(f"good {file} {number}" for number in range(20)), *[None] * 4] for file in range(3)]
    folder = files(tmp_path / "in", *many)
    with pytest.raises(InputError, match=r"12 of 72 rows cannot be used \(12 null\).*00.jsonl:21"):
        load(folder, tmp_path / "root", size=1)
    assert load(folder, tmp_path / "root", size=1, max_rejected=12).counts["rejected"] == {"null": 12}


def test_a_hopeless_first_part_ends_the_work_at_once_and_a_later_one_may_be_the_only_bad_one(tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr("tlm.data.reading.records.HOPELESS_ROWS", 5)
    monkeypatch.setattr("tlm.data.reading.records.SHARE_REJECTED", 0.1)
    bad, good = ["one", *[None] * 9], [f"good {number}" for number in range(90)]
    with pytest.raises(InputError, match=r"rows cannot be used"):
        load(files(tmp_path / "first", bad, good), tmp_path / "root", size=1, max_rejected=0)
    assert not left(tmp_path / "root")
    assert (
        load(files(tmp_path / "later", good, bad), tmp_path / "root", size=1, max_rejected=0).counts["documents"] == 91
    )


def downloads(folder, cache):
    """The files of a folder, as if they were on S3."""
    cache.mkdir()

    def copied(path):
        copy = cache / path.name
        return copy if copy.exists() else Path(shutil.copy2(path, copy))

    with raw_files([folder]) as found:
        return [replace(file, locate=partial(copied, file.path), cache=cache) for file in found]


@pytest.mark.parametrize(("size", "kept"), [(1, []), (1000, ["00.jsonl", "01.jsonl"])])
def test_a_plan_keeps_downloads_only_for_whoever_reads_them_next(tmp_path, size, kept):
    folder, cache = files(tmp_path / "in", ["a"], ["b"]), tmp_path / "cache"
    make_plan([folder], None, Layout(), downloads(folder, cache), size)
    assert sorted(path.name for path in cache.iterdir()) == kept


def test_downloads_begin_only_if_there_is_room_for_those_that_are_kept(tmp_path, monkeypatch):
    folder, cache = files(tmp_path / "in", ["a"], ["b"]), tmp_path / "cache"
    raw = downloads(folder, cache)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1))
    plan = make_plan([folder], None, Layout(), raw, 1)
    with pytest.raises(InputError, match="the 1 raw files take"):
        plan.files(raw, 0)
    with pytest.raises(InputError, match="the 2 raw files take"):
        make_plan([folder], None, Layout(), raw, 1000)
    assert not list(cache.iterdir())


@pytest.mark.parametrize("size", [1, 1000])
def test_a_disk_without_room_for_the_corpus_is_said_first(tmp_path, monkeypatch, size):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    folder = files(tmp_path / "in", ["a"], ["b"])
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1))
    with pytest.raises(InputError, match=f"the {1 if size == 1 else 2} raw files take"):
        load(folder, tmp_path / "root", size=size)


def test_texts_are_compared_in_as_many_buckets_as_their_estimated_size_needs(tmp_path, monkeypatch):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a text\n"))
    with raw_files([str(tmp_path)]) as found:
        monkeypatch.setattr("tlm.data.corpus.plan.BUCKET_BYTES", found[0].size // 8)  # three times as much as text
        assert make_plan([str(tmp_path)], None, Layout(), found, 1000).buckets == 32


def test_a_bad_file_ends_all_processes_with_its_sentence(tmp_path):
    folder = files(tmp_path / "in", ["a"], ["b"], ["c"])
    with (Path(folder) / "01.jsonl").open("a") as file:
        file.write("x" * (65 << 20))
    with pytest.raises(InputError, match=r"01.jsonl:2: the line is longer than 64 MiB"):
        load(folder, tmp_path / "root", size=1)


@pytest.mark.parametrize(("size", "expected"), [(1, 100), (6400, 100), (64_000, 1000), (10**15, 1 << 30)])
def test_parts_are_a_64th_of_the_text_within_limits(size, expected):
    def located():
        raise AssertionError

    assert part_size([RawFile("a.txt", "a.txt", "txt", "", located, size=size)], 100) == expected


@pytest.mark.parametrize("pods", [1, 3, 9])
def test_several_pods_give_the_corpus_of_one(tmp_path, monkeypatch, pods):
    """Nine have more pods than parts."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    folder = files(tmp_path / "in", *([f"text {number % 7} of {file}" for number in range(9)] for file in range(5)))
    root = tmp_path / "several"
    items = plan_corpus([folder], pods=pods, least=1, root=str(root))
    assert len(items) == pods
    written = [write_corpus(pod) for pod in dedup_corpus([stage_corpus(pod) for pod in items])]
    corpus = Artifact.open(publish_corpus(written), "corpus")
    same(load(folder, tmp_path / "one"), corpus)
    assert not left(root)
    again = [write_corpus(pod) for pod in dedup_corpus([stage_corpus(pod) for pod in items])]  # an equal run, later
    assert publish_corpus(again) == corpus.uri
    assert not left(root)


@pytest.mark.parametrize("lost", [False, True])
def test_a_corpus_in_parts_notes_the_cpu_time_of_all(tmp_path, lost):
    """The sum over all pods; None if one result on the way has lost its note."""
    root = tmp_path / "root"
    items = plan_corpus([files(tmp_path / "in", ["a", "b"], ["c"])], pods=2, least=1, root=str(root))
    written = [write_corpus(pod) for pod in dedup_corpus([stage_corpus(pod) for pod in items])]
    notes = [path for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/run.json")]
    spent = [json.loads(path.read_text())["process_seconds"] for path in notes]
    if lost:
        notes[0].unlink()
    run = Artifact.open(publish_corpus(written), "corpus").run()
    assert run["parts"] == 2
    assert run["parts_process_seconds"] == (None if lost else pytest.approx(sum(spent), abs=1e-3))
    assert len(spent) > 4


def test_copies_of_digests_are_removed_once_they_are_compared(tmp_path, monkeypatch):
    """A store on S3 has them, and all together may be large."""
    removed = []
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    monkeypatch.setattr(
        "tlm.artifacts.stores.local.LocalStore.forget", lambda _, name: removed.append(Path(name).name[:11])
    )
    load(files(tmp_path / "in", ["a"], ["b"]), tmp_path / "root", size=1)
    assert sorted(removed) == [f"digests-{bucket:03d}" for bucket in range(16) for _ in range(2)]


def test_a_pod_whose_part_is_missing_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    items = plan_corpus([files(tmp_path / "in", ["a"], ["b"])], pods=2, least=1, root=str(tmp_path))
    stage_corpus(items[0])
    with pytest.raises(InputError, match=r"corpus-part 1 of the corpus [0-9a-f]{24} is missing; start the run again"):
        dedup_corpus(items)


def test_a_file_that_changes_while_parts_are_read_is_refused(tmp_path):
    folder = files(tmp_path / "in", ["a"], ["b"])
    (item,) = plan_corpus([folder], pods=1, least=1, root=str(tmp_path))
    (Path(folder) / "01.jsonl").write_text('{"text": "c"}\n')
    with pytest.raises(InputError, match=r"01.jsonl has changed since its corpus was planned"):
        stage_corpus(item)


def test_a_file_that_is_gone_since_the_plan_is_said(tmp_path):
    folder = files(tmp_path / "in", ["a"], ["b"])
    (item,) = plan_corpus([folder], pods=1, least=1, root=str(tmp_path))
    (Path(folder) / "01.jsonl").unlink()
    with pytest.raises(InputError, match=r"^.*/in had 2 files and has 1 now; start the run again$"):
        stage_corpus(item)


def test_a_file_that_comes_after_the_plan_is_of_no_concern_behind_the_others(tmp_path):
    folder = files(tmp_path / "in", ["a"], ["b"])
    items = plan_corpus([folder], pods=2, least=1, root=str(tmp_path))
    for name in ("02.jsonl", "00-new.jsonl"):
        assert stage_corpus(items[1]) == items[1]
        (Path(folder) / name).write_text('{"text": "c"}\n')
        shutil.rmtree(tmp_path / "corpus-part")
    with pytest.raises(InputError, match=r"has changed since its corpus was planned"):
        stage_corpus(items[1])


def test_shards_that_are_gone_are_written_again(tmp_path, monkeypatch):
    """As `tlm gc` may remove them from an unfinished corpus after a week."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    folder = files(tmp_path / "in", ["a", "b"], ["c"])
    root = tmp_path / "root"
    items = plan_corpus([folder], pods=1, least=1, root=str(root))
    items = [write_corpus(pod) for pod in dedup_corpus([stage_corpus(pod) for pod in items])]
    (lost,) = root.glob("corpus/*/passages-*.parquet")
    lost.unlink()
    with pytest.raises(Interrupted, match="shards of 1 parts are gone"):
        publish_corpus(items)
    same(load(folder, tmp_path / "one"), Artifact.open(publish_corpus([write_corpus(pod) for pod in items]), "corpus"))


@pytest.mark.parametrize("removed", [0, 5])
def test_parts_that_a_kill_left_behind_are_removed_by_the_repetition(tmp_path, monkeypatch, removed):
    """The kill comes after the corpus is published, while its parts are being removed."""
    folder, root, calls = files(tmp_path / "raw", ["one", "two"], ["three"]), tmp_path / "root", itertools.count()

    class Killed(BaseException):
        """So that nothing handles it."""

    def remove_or_die(store, name):
        if next(calls) == removed:
            raise Killed
        remove(store, name)

    with monkeypatch.context() as patch:
        patch.setattr("tlm.data.corpus.load.remove", remove_or_die)
        with pytest.raises(Killed):
            load(folder, root, size=1)
    (corpus,) = root.glob("corpus/*")
    assert left(root)
    assert Path(load(folder, root, size=1).uri) == corpus
    assert not left(root)


@pytest.mark.parametrize("error", [InputError("corpus-part 0 is missing"), FileNotFoundError("digests-000.bin")])
def test_parts_that_an_equal_command_removed_are_no_error(tmp_path, monkeypatch, error):
    def make_all(plan, *_):
        """As the other command does, which then removes the parts."""
        for kind in ON_THE_WAY:
            make(plan, kind, plan.numbers(kind))
        publish(plan)
        raise error

    monkeypatch.setattr("tlm.data.corpus.load.make", make_all)
    assert load(files(tmp_path / "in", ["a"], ["b"]), tmp_path / "root", size=1).counts["documents"] == 2


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc to find child processes in")
def test_killed_at_any_moment_finished_parts_are_not_repeated(tmp_path, monkeypatch):
    """The processes that it had started end, too. Each file is cut in two."""
    monkeypatch.setattr("tlm.data.corpus.plan.can_be_cut", can_be_cut)
    count = 6
    texts = [
        [f"text {number % 9000} of {file // 3} " + "word " * 40 for number in range(12_000)] for file in range(count)
    ]
    folder, root = files(tmp_path / "in", *texts), tmp_path / "root"
    one = load(folder, tmp_path / "one")
    command = (
        f"from tlm.data.corpus import load as corpus; corpus.part_size = lambda files, least: 2 << 20; "
        f"corpus.load_corpus([{folder!r}], root={str(root)!r})"
    )
    before: dict[Path, int] = {}
    for kind in ON_THE_WAY:
        process = subprocess.Popen([sys.executable, "-c", command])
        deadline = time.monotonic() + 120
        while len(list(root.glob(f"{kind}/*/manifest.json"))) < 2:
            assert process.poll() is None, f"it ended before it could be killed among {kind}"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        workers = [int(child) for child in children(process.pid)]
        process.kill()
        process.wait()
        until(lambda workers=workers: not any(map(alive, workers)))
        assert not any(root.glob("corpus/*/manifest.json"))
        made = {path: path.stat().st_mtime_ns for kind in ON_THE_WAY for path in root.glob(f"{kind}/*/manifest.json")}
        assert before.items() <= made.items()  # nothing was made again
        before = made
    same(one, load(folder, root, size=2 << 20))
    assert not left(root)


def test_several_pods_share_what_has_a_few_megabytes(tmp_path):
    folder = files(tmp_path / "in", *[["word " * 120_000]] * 3)
    (item,) = plan_corpus([folder], pods=1, root=str(tmp_path))
    assert Artifact.open(json.loads(item)["plan"]).details["parts"] == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("pods", [0, -1])
def test_a_corpus_is_loaded_by_at_least_one_pod(pods):
    with pytest.raises(InputError, match=f"pods is {pods}; expected 1 or more"):
        plan_corpus(["corpus.jsonl"], pods=pods)
