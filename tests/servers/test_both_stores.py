"""What artifacts and unfinished work promise, in a local folder and on a real S3 server alike."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import boto3
import pytest

from tests.making import (
    FILES,
    everything,
    expected,
    files_in,
    fill,
    fill_folder,
    flip,
    leftovers,
    make,
    recipe,
    truncate,
)
from tests.searchable import corpus_of, task_of
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import KEPT, Progress
from tlm.artifacts.stores import open_store
from tlm.cli.upkeep import gc, ls
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.settings.options import Filters


@pytest.fixture(params=["local", "s3"])
def root(request, tmp_path):
    return f"{tmp_path}/root" if request.param == "local" else request.getfixturevalue("s3_root")


@pytest.fixture
def store(root):
    return open_store(root)


# ---- the store


def test_create_is_conditional_and_write_replaces(store):
    assert store.read("a/b") is None
    assert store.create("a/b", b"first")
    assert not store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    store.write("a/b", b"third")
    assert store.read("a/b") == store.local("a/b").read_bytes() == b"third"
    assert leftovers(store.scratch()) == []


def test_of_many_creators_at_once_one_wins(store):
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: store.create("taken", b"%d" % number), range(8)))
    assert sum(won) == 1
    assert store.read("taken") == b"%d" % won.index(True)


def test_list_gives_what_is_there_by_prefix(store, tmp_path):
    assert list(store.list("")) == list(store.list("a/")) == []
    for name in ("a/1/x", "a/2", "ab"):
        store.write(name, name.encode())
    (tmp_path / "source").write_bytes(b"12345")
    store.add("b/1", tmp_path / "source")
    assert {stored.name: stored.size for stored in store.list("")} == {"a/1/x": 5, "a/2": 3, "ab": 2, "b/1": 5}
    assert sorted(stored.name for stored in store.list("a/")) == ["a/1/x", "a/2"]
    assert sorted(stored.name for stored in store.list("a")) == ["a/1/x", "a/2", "ab"]


def test_list_goes_on_after_a_thousand_names(store):
    names = {f"many/{number:04d}" for number in range(1005)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.write(name, b""), names))
    assert {stored.name for stored in store.list("many/")} == names


def test_delete_may_be_repeated(store):
    store.write("a/b/c", b"1")
    for _ in range(2):
        store.delete("a/b/c")
    assert store.read("a/b/c") is None
    assert list(store.list("")) == []


# ---- artifacts


def test_what_is_deleted_leaves_no_copy_on_this_machine(store):
    store.write("a/1", b"x")
    copy = store.local("a/1")
    assert copy.read_bytes() == b"x"
    store.delete("a/1")
    assert not copy.exists()


def test_content_does_not_depend_on_the_store(root, tmp_path):
    here, there = make(root), make(f"{tmp_path}/other")
    assert here.manifest == there.manifest
    assert everything(here) == everything(there) == expected()


def test_what_was_made_is_found(root):
    first = make(root)
    again = make(root, lambda draft: pytest.fail("made twice"))
    assert again.uri == first.uri == f"{root}/hits/{recipe().key}"
    assert everything(again) == expected()
    assert again.run()["threads"] == 1
    assert files_in(again.path("model")) == {
        name.removeprefix("model/"): data for name, data in expected().items() if name.startswith("model/")
    }


def test_the_first_of_two_writers_wins_and_the_second_changes_nothing(root):
    def slower(draft):
        fill(draft, "too late")
        make(root)  # meanwhile another one publishes

    late = make(root, slower)
    assert everything(late) == expected()
    assert late.run() == make(root).run()


@pytest.mark.parametrize("name", ["numbers.txt", "model/deep/weights.bin"])
@pytest.mark.parametrize("damage", [flip, truncate, None], ids=["bit flip", "truncation", "missing"])
def test_a_damaged_file_is_never_read(root, store, name, damage):
    made = make(root)
    entry = next(entry for entry in made.entries() if entry.logical == name)
    place = f"{made.folder_name}/{entry.name}"
    store.write(place, damage(expected()[name])) if damage else store.delete(place)
    with pytest.raises(InputError, match=r"damaged or missing.*run its step again"):
        Artifact.open(made.uri).path(name)
    assert made.path("more.parquet").read_bytes() == expected()["more.parquet"]


@pytest.mark.parametrize("damage", [flip, truncate, lambda data: b""], ids=["bit flip", "truncation", "empty"])
def test_a_damaged_manifest_is_passed_over_and_its_step_makes_the_artifact_again(root, store, capsys, damage):
    whole, made = make(root, seed=1), make(root)
    name = f"{made.folder_name}/manifest.json"
    published = store.read(name)
    store.write(name, damage(published))
    for look in (partial(ls, root=root), partial(gc, unused_days=0, root=root)):
        assert made.manifest.key not in look()
        told = capsys.readouterr().err
        assert f"warning: skipped: {root}/{name}: " in told
        assert f"would remove {made.folder_name}" not in told
    assert whole.manifest.key in ls(root=root)
    with pytest.raises(InputError, match=rf"^{root}/{name}: .*; repeat its step$"):
        Artifact.open(made.uri)
    assert everything(make(root)) == expected()
    assert store.read(name) == published
    assert store.read(f"{name}.damaged") == damage(published)
    assert made.manifest.key in ls(root=root)


def test_a_manifest_that_was_damaged_on_its_way_alone_is_used(root, store, monkeypatch, capsys):
    made, damaged, read = make(root), list[str](), type(store).read

    def once(self, name):
        data = read(self, name)
        if not name.endswith("/manifest.json") or name in damaged:
            return data
        damaged.append(name)
        return data[:-100]

    monkeypatch.setattr(type(store), "read", once)
    assert make(root).uri == made.uri
    assert damaged == [f"{made.folder_name}/manifest.json"]
    assert "already there" in capsys.readouterr().err
    assert read(store, f"{damaged[0]}.damaged") is None


def run(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_at_once_make_the_same(root):
    both = [run("-c", f"from tests.making import make; print(make({root!r}).uri)") for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=60)
        assert output == f"{root}/hits/{recipe().key}\n", errors
    assert everything(make(root, lambda draft: pytest.fail("made again"))) == expected()


def test_killed_at_any_moment_nothing_unfinished_is_seen_and_the_next_run_finishes(root, tmp_path):
    """Every moment: a process dies at its first wait for disk or server, one at its second, … until one survives."""
    undisturbed = make(f"{tmp_path}/undisturbed").content
    output, errors = run("-m", "tests.making", root).communicate(timeout=120)
    *killed, last = [int(line.split()[1]) for line in output.splitlines()]
    assert (last, set(killed)) == (0, {-signal.SIGKILL}), errors
    assert len(killed) > 20
    for moment in range(len(killed) + 1):
        place, snapshot = f"{root}/{moment}", tmp_path / f"snapshot-{moment}"
        store = open_store(place)
        found = Artifact.find(store, "hits", recipe().key)
        assert found is None or everything(found) == expected()
        step = Progress("work", place).latest(snapshot)
        assert step is None or files_in(snapshot) == expected(f"step {step}", FILES[1:3])
        assert make(place).content == undisturbed
        make(place, seed=1)
        assert [path for path in leftovers(store.scratch()) if path.is_dir() or path.suffix == ".lock"] == []
    assert step == 3


# ---- removing what nobody needs


def test_gc_spares_what_a_run_under_way_uses(root, store):
    """The run found corpus and index finished; both are old, and no report needs them."""
    texts = [f"{text} number {number}" for number, text in enumerate(["the cell and the gene", "a ship at sea"] * 20)]
    corpus, other = corpus_of(texts, root), corpus_of(texts[:9], root)
    index, examples = build_index(corpus, root=root), task_of(texts[:3], root)
    time.sleep(2.5)  # S3 tells times in whole seconds
    old = time.time() - 1

    def collect() -> None:
        gc(unused_days=(time.time() - old) / 86_400, delete=True, root=root)

    assert build_index(corpus, root=root) == index
    assert task_of(texts[:3], root) == examples
    collect()
    hits = retrieve(index, examples, root=root)
    collect()
    subset = export(hits, filters=Filters(near_duplicates=False), root=root)
    assert Artifact.open(subset).details["passages"] > 0
    assert store.read(f"{other.removeprefix(f'{root}/')}/manifest.json") is None, "gc removed nothing"


KEY = "0123456789abcdef01234567"
FOREIGN = (
    "notes.txt", "manifest.json", "data/raw/corpus.jsonl", "data/raw/deep/er/x.txt", "photos/2019/may/1/a.jpg",
    "v2/artifacts/manifest.json", f"photos/{KEY}/manifest.json", f"v2/artifacts/model/{KEY}/model.bin",
    "model/notes.txt", f"model/{KEY}", f"model/{KEY}0/x", f"model/{KEY.upper()}/x", f"models/{KEY}/x",
    "progress/notes.txt", f"progress/{KEY}/notes.txt", f"progress/{KEY}/step-x/state", "progress/work/step-1/state",
)  # fmt: skip
OURS = (f"report/{KEY}/manifest.json.damaged", f"corpus-part/{KEY}/a/b/c", f"progress/{KEY}/step-000000001/state")


@pytest.mark.parametrize("whole_bucket", [False, True])
def test_gc_touches_nothing_that_is_not_ours(root, whole_bucket, capsys):
    root = root.rpartition("/")[0] if whole_bucket and root.startswith("s3://") else root
    store = open_store(root)
    made = make(root)
    for name in (*FOREIGN, *OURS):
        store.write(name, name.encode())
    time.sleep(1.1)  # S3 tells times in whole seconds
    dry = gc(keep_runs=0, unused_days=0, root=root)
    told = capsys.readouterr().err
    really = gc(keep_runs=0, unused_days=0, delete=True, root=root)
    assert {stored.name for stored in store.list("")} == set(FOREIGN)
    assert all(store.read(name) == name.encode() for name in FOREIGN)
    for said in (dry, really):
        assert said.endswith(f"; {len(FOREIGN)} other files are left alone")
    assert "warning" not in told
    first, *lines = told.splitlines()
    assert first == "keeping 0 of 0 reports and studies, the newest of each task"
    assert sorted(lines) == sorted(
        f"would remove {name}" for name in (made.folder_name, *(name.rpartition("/")[0] for name in OURS[::2]),
                                            f"corpus-part/{KEY}")
    )  # fmt: skip
    store.write(f"report/{KEY}/x", b"1")
    for name in FOREIGN[1:]:
        store.delete(name)
    assert gc(root=root).endswith("; 1 other file is left alone")


def test_gc_ends_no_upload_that_is_not_ours(s3_root):
    bucket = s3_root.split("/")[2]
    client = boto3.client("s3")
    ours = [f"model/{KEY}/weights.bin", f"progress/{KEY}/step-000000001/state"]
    foreign = ["data/raw/large.jsonl", f"model/{KEY}", "a/b/c/d/e.bin", "model/weights.bin"]
    for name in (*ours, *foreign):
        client.create_multipart_upload(Bucket=bucket, Key=f"prefix/{name}")
    time.sleep(1.1)
    for delete in (False, True):
        gc(unused_days=0, delete=delete, root=s3_root)
        left = {upload["Key"] for upload in client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])}
        assert left == {f"prefix/{name}" for name in (*foreign, *(() if delete else ours))}


# ---- unfinished work


@pytest.fixture
def work(root):
    return Progress("work", root)


def save(work: Progress, step: int) -> None:
    work.save(step, lambda folder: fill_folder(folder, f"step {step}"))


def test_the_latest_snapshot_is_given_and_the_newest_two_are_kept(work, store, tmp_path):
    assert work.latest(tmp_path) is None
    for step in (9, 10, 100):
        save(work, step)
    assert work.latest(tmp_path / "into") == 100
    assert files_in(tmp_path / "into") == expected("step 100")
    assert {stored.name.split("/")[2] for stored in store.list("progress/")} == {"step-000000010", "step-000000100"}
    assert KEPT == 2


@pytest.mark.parametrize("damage", [flip, truncate, None], ids=["bit flip", "truncation", "missing"])
@pytest.mark.parametrize("part", ["manifest", "weights"])
def test_a_damaged_snapshot_is_passed_over(work, store, tmp_path, capsys, damage, part):
    for step in (1, 2):
        save(work, step)
    place = next(
        name for name in (stored.name for stored in store.list("progress/work/step-000000002/")) if part in name
    )
    store.write(place, damage(store.read(place))) if damage else store.delete(place)
    assert work.latest(tmp_path / "into") == 1
    assert files_in(tmp_path / "into") == expected("step 1")
    assert "step-000000002 is skipped" in capsys.readouterr().err or (part, damage) == ("manifest", None)


def test_nothing_of_a_damaged_snapshot_is_given(work, store, tmp_path):
    save(work, 1)
    work.save(2, lambda folder: [(folder / name).write_text(name) for name in ("a", "b")])
    place = next(stored.name for stored in store.list("progress/work/step-000000002/b"))
    store.write(place, b"?")
    assert work.latest(tmp_path / "into") == 1
    assert files_in(tmp_path / "into") == expected("step 1")


@pytest.mark.parametrize("part", ["manifest", "weights"])
def test_a_damaged_snapshot_is_healed_by_reaching_its_step_again(work, store, tmp_path, part):
    save(work, 1)
    place = next(stored.name for stored in store.list("progress/work/") if part in stored.name)
    store.write(place, b"?")
    save(work, 1)
    assert work.latest(tmp_path / "into") == 1


def test_clear_leaves_nothing_and_touches_no_other_work(root, work, store, tmp_path):
    save(work, 1)
    save(Progress("work-2", root), 5)
    work.clear()
    work.clear()
    assert work.latest(tmp_path / "into") is None
    assert Progress("work-2", root).latest(tmp_path / "into") == 5
    assert leftovers(store.scratch()) == []


def test_the_environment_names_the_root_of_work_too(root, work, monkeypatch, tmp_path):
    save(work, 1)
    monkeypatch.setitem(os.environ, "TLM_ROOT", root)
    assert Progress("work", None).latest(tmp_path) == 1
