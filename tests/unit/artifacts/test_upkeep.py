"""Listing, downloading, and removing what no kept run needs."""

import errno
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.tiny import refused
from tlm.artifacts.artifact import Artifact, FileEntry
from tlm.artifacts.produce import Draft, Progress, Recipe, produce
from tlm.artifacts.stores.local import here, whole
from tlm.artifacts.stores.store import Store, signed_json
from tlm.cli import upkeep
from tlm.cli.upkeep import UNFINISHED, download, gc, ls
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.evaluation.origins.provenance import provenance
from tlm.evaluation.predict.models import located
from tlm.progress import track
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.settings.options import Filters
from tlm.training.input.tokenizer import build_tokenizer


def make(root: Path, kind: str, seed: int, **inputs: str) -> str:
    def write(draft: Draft) -> None:
        (draft.folder / "model").mkdir()
        (draft.folder / "model" / "config.json").write_text(f'{{"seed": {seed}}}')
        (draft.folder / "curve.txt").write_text(str(seed))
        draft.counts["seed"] = seed

    sources = {name: Artifact.open(uri) for name, uri in inputs.items()}
    return produce(Recipe(kind, "test", 1, {"seed": seed}, sources), str(root), write)


def run(root: Path, seed: int) -> dict[str, str]:
    corpus = make(root, "corpus", seed)
    model = make(root, "model", seed, corpus=corpus)
    return {"corpus": corpus, "model": model, "report": make(root, "report", seed, model=model)}


def age(root: Path, days: float) -> None:
    """Have all files be so old."""
    for path in root.rglob("*"):
        os.utime(path, (time.time() - days * 86_400,) * 2)


def test_download_gives_plain_names(tmp_path: Path) -> None:
    uri = make(tmp_path / "store", "model", 1)
    download(uri, str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "curve.txt", "tlm.json"]
    for place in ("out", "out/curve.txt"):
        with pytest.raises(InputError, match="not an empty folder"):
            download(uri, str(tmp_path / place))


def test_copying_and_removing_many_files_show_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tlm.progress.LOG_EVERY_SECONDS", 0.0)
    store = tmp_path / "store"
    model = Artifact.open(make(store, "model", 1))
    download(model.uri, str(tmp_path / "out"))
    assert f"copying {model.folder_name}: 2 of 2 files" in capsys.readouterr().err
    model.path("model")
    assert f"reading {model.folder_name}: 1 of 1 files" in capsys.readouterr().err
    gc(root=str(store), remove=[model.uri], delete=True)
    assert f"removing {model.folder_name}: 5 of 5 files" in capsys.readouterr().err


def test_a_bar_inside_another_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, which has a bar, removes old snapshots."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    for _ in track([0], "training"):
        assert list(track([1], "removing")) == [1]
    assert re.search("training.*\n.*removing", screen.getvalue())
    assert screen.getvalue().endswith("\x1b[2K\x1b[?25h\r"), "a bar is left"


def test_an_interrupted_download_can_be_repeated_but_not_mixed_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, other = (make(tmp_path / "store", "model", seed) for seed in (1, 2))
    verified = Artifact.verified

    def interrupted(self: Artifact, entry: FileEntry) -> Path:
        if entry.logical == "model/config.json":
            raise KeyboardInterrupt
        return verified(self, entry)

    monkeypatch.setattr(Artifact, "verified", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(uri, str(tmp_path / "out"))
    monkeypatch.undo()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {".unfinished-download", "curve.txt"}
    (tmp_path / "out" / "config.json").write_text("{}")  # of an earlier model, with --force
    assert f"out is not copied whole; repeat `tlm download {uri} {tmp_path}/out`" in refused(located, f"{tmp_path}/out")
    assert "not an empty folder" in refused(download, other, f"{tmp_path}/out")
    download(uri, str(tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"config.json", "curve.txt", "tlm.json"}


def test_a_download_goes_on_where_the_disk_had_no_space_for_its_mark(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / UNFINISHED).touch()
    assert "repeat `tlm download URI " in refused(located, f"{tmp_path}/out")
    download(make(tmp_path / "store", "model", 1), str(tmp_path / "out"))
    assert not (tmp_path / "out" / UNFINISHED).exists()


def test_no_folder_gets_the_name_of_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri, address = make(tmp_path / "store", "corpus", 1), "s3://bucket/out"
    monkeypatch.chdir(tmp_path)
    for error in (refused(download, uri, address), refused(provenance, uri, to=address)):
        assert error.startswith(f"{address} is not on this machine; name a file or folder here")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert here("file:///out") == here(Path("file:///out")) == Path("/out")


def test_no_folder_gets_the_name_of_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell replaces the ~ of ``--to=~/out``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download(make(tmp_path / "store", "corpus", 1), "~/out") == str(tmp_path / "out")  # for $(…)
    assert (tmp_path / "out" / "curve.txt").is_file()


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    (file := tmp_path / "page.html").write_text("before")
    with suppress(OSError), whole(file) as sink:
        sink.write("half of it")
        sink.flush()
        raise OSError("no space")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("page.html", "before")]


def test_what_a_killed_process_left_of_a_file_is_removed_when_it_is_written_again(tmp_path: Path) -> None:
    """Not what another process is writing, perhaps on another machine, nor the parts of another file."""
    left, young, other = (
        tmp_path / f".{name}.part" for name in ("a[1].csv.0123abcd", "a[1].csv.4567abcd", "b.csv.0123abcd")
    )
    with whole(tmp_path / "a[1].csv"):
        (held,) = tmp_path.iterdir()
        for path, modified in ((left, 0.0), (young, time.time() - 3_600), (other, 0.0), (held, 0.0)):
            path.touch()
            os.utime(path, (modified, modified))
        with whole(tmp_path / "a[1].csv") as sink:
            assert [path.exists() for path in (left, young, other, held)] == [False, True, True, True]
            sink.write("again")


def test_a_file_that_only_we_may_read_stays_so(tmp_path: Path) -> None:
    """Its texts are written to another file, which takes its place."""
    (file := tmp_path / "answers.jsonl").touch(0o600)
    with whole(file) as sink:
        assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600, 0o600]
        sink.write("a text")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("a text", 0o600)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_only_a_missing_folder_asks_for_a_folder_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A full disk is none of the user's names: it ends with exit code 3, and the step can be repeated."""

    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with pytest.raises(InputError, match="cannot be written: No such file or directory; name a file"):
        whole(tmp_path / "none" / "page.html").__enter__()
    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(OSError, match=os.strerror(code)):
        whole(tmp_path / "page.html").__enter__()


def test_a_downloaded_card_says_where_the_model_comes_from(tmp_path: Path) -> None:
    def write(draft: Draft) -> None:
        (draft.folder / "model").mkdir()
        (draft.folder / "model" / "README.md").write_text("# A model\n")

    uri = produce(Recipe("model", "test", 1, {}, {}), str(tmp_path / "store"), write)
    download(uri, str(tmp_path / "out"))
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("# A model\n")
    assert f"`tlm provenance {uri}`" in card
    assert Artifact.open(uri).path("model/README.md").read_text() == "# A model\n"


def test_ls_names_each_artifact_once(tmp_path: Path) -> None:
    made = run(tmp_path, 1)
    lines = ls(root=str(tmp_path)).splitlines()
    assert len(lines) == 3
    assert all(any(uri.rsplit("/", 1)[1] in line for line in lines) for uri in made.values())
    make(tmp_path, "corpus-plan", 1)
    for kind in ("model", "corpus"):
        assert ls(kind=kind, root=str(tmp_path)).count("\n") == 0


def test_what_a_newer_version_made_is_named_by_ls_and_stops_gc(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A colleague who upgrades first must not hide a shared store; and what a newer report needs is not known."""
    made = run(tmp_path, 1)
    path = Path(made["model"]) / "manifest.json"
    facts = json.loads(path.read_bytes()) | {"schema_version": 2}
    del facts["sha256"]
    path.write_bytes(signed_json(facts))
    assert len(ls(root=str(tmp_path)).splitlines()) == 2
    assert f"warning: skipped: {path}: schema_version: " in capsys.readouterr().err
    with pytest.raises(InputError, match="a newer tlm wrote it; upgrade here"):
        gc(delete=True, unused_days=0, root=str(tmp_path))
    assert all(Path(uri).is_dir() for uri in made.values())


def test_manifests_are_read_together_because_each_is_a_request_on_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run(tmp_path, 1)
    together, find = threading.Barrier(len(made), timeout=10), Artifact.find

    def waiting(store: Store, kind: str, key: str) -> Artifact | None:
        together.wait()
        return find(store, kind, key)

    before = ls(root=str(tmp_path))
    monkeypatch.setattr(Artifact, "find", waiting)
    assert ls(root=str(tmp_path)) == before


def test_ls_names_the_store_that_has_nothing(tmp_path: Path) -> None:
    assert ls(root=str(tmp_path / "nothere")) == f"no finished artifacts in {tmp_path / 'nothere'}"


def listed(uri: str) -> str:
    """What `ls` says of an artifact behind its size."""
    artifact = Artifact.open(uri)
    (line,) = [line for line in ls(root=artifact.store.root).splitlines() if artifact.manifest.key in line]
    return line.partition(" MB  ")[2]


def test_ls_shows_counts_and_the_rows_that_were_set_aside(tmp_path: Path) -> None:
    root, data = str(tmp_path / "store"), tmp_path / "data"
    data.mkdir()
    texts = [f"the {word} of number {number}" for number, word in enumerate(["ship", "court", "gene"] * 10)]
    rows = [*({"text": text} for text in texts), {"text": ""}, {"text": 1}]
    (data / "corpus.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    corpus = load_corpus([str(data / "corpus.jsonl")], max_rejected=9, root=root)
    (data / "corpus.jsonl").unlink()
    for split in ("train", "dev", "test"):
        examples = [{"text": f"{split} {text}", "label": text.split()[1]} for text in texts[:6]]
        examples += [{"text": "nothing", "label": ""}] if split == "train" else []
        (data / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in examples))
    task = load_task(str(data), max_rejected=9, root=root)
    hits = retrieve(build_index(corpus), task)
    assert listed(corpus).startswith("documents 30, passages 30, read 32, rejected {")
    assert listed(task).startswith("data, dev 6, labels {court 6, gene 6, ship 6}, read 19, rejected {")
    for uri, path in ((corpus, "rejected.parquet"), (task, "rejected.parquet")):
        reasons = pq.read_table(Artifact.open(uri).path(path))["reason"].to_pylist()
        assert reasons
        assert all(f"{reason} {reasons.count(reason)}" in listed(uri).partition("rejected {")[2] for reason in reasons)
    assert listed(hits).startswith("bm25, examples 6, hits ")
    subset = export(hits, filters=Filters(overlap=False))
    assert listed(subset).startswith("bm25, candidates ")
    assert Artifact.open(subset).counts["near-duplicate"] == 0
    assert "near-duplicate" not in listed(subset)
    assert listed(build_tokenizer(corpus, task, vocab_size=300)).startswith("texts 36, vocab_size ")


def test_ls_shortens_what_is_long_and_prints_no_commands_for_the_terminal(tmp_path: Path) -> None:
    def write(draft: Draft) -> None:
        labels = {f"\x1b{number}": number for number in range(9)}
        draft.counts.update(flops=4 * 10**13, labels=labels, rejected={}, leaks=0)

    uri = produce(Recipe("task", "test", 1, {}), str(tmp_path), write)
    assert listed(uri) == r"flops 4e+13, labels {\x1b8 8, \x1b7 7, \x1b6 6, \x1b5 5, 5 more}"


def there(*uris: str) -> list[bool]:
    """Whether each has its manifest; looked for without opening it, which would count as use."""
    return [Path(uri, "manifest.json").is_file() for uri in uris]


def test_gc_keeps_the_newest_runs_and_what_they_were_made_from(tmp_path: Path) -> None:
    old, new = run(tmp_path, 1), run(tmp_path, 2)
    unfinished = tmp_path / "progress" / ("0" * 24) / "step-000000001" / "part.bin"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("x")
    age(tmp_path, 8)
    age(Path(new["report"]), 7.5)
    gc(keep_runs=1, root=str(tmp_path))
    assert all(there(*old.values())), "a dry run removed something"
    gc(keep_runs=1, delete=True, root=str(tmp_path))
    assert all(there(*new.values()))
    assert not any(there(*old.values()))
    assert not unfinished.exists()


def test_gc_keeps_the_newest_studies_beside_the_reports(tmp_path: Path) -> None:
    """A study of a model that no report has any more, and not the older study."""
    old = make(tmp_path, "study", 1, subset=make(tmp_path, "subset", 1))
    age(tmp_path, 30)
    subset = make(tmp_path, "subset", 2)
    study = make(tmp_path, "study", 2, subset=subset)
    for uri in (subset, study):
        age(Path(uri), 20)
    report = run(tmp_path, 3)["report"]
    gc(keep_runs=1, unused_days=0, delete=True, root=str(tmp_path))
    assert there(subset, study, report, old) == [True, True, True, False]


def test_gc_keeps_the_newest_reports_of_each_task(tmp_path: Path) -> None:
    """Those of a task that is reported every night do not push out another team's only one."""

    def task(number: int, labels: list[str]) -> str:
        def write(draft: Draft) -> None:
            draft.details = {"name": "task", "labels": labels}

        return produce(Recipe("task", "test", 1, {"number": number}, {}), str(tmp_path), write)

    other = make(tmp_path, "report", 0, task=task(0, ["x", "y"]))
    nightly = [make(tmp_path, "report", number, task=task(number, ["a", "b"])) for number in (1, 2, 3)]
    for days, uri in enumerate(reversed([other, *nightly]), 8):
        age(tmp_path / "task", 30)
        age(Path(uri), days)
    gc(keep_runs=1, delete=True, root=str(tmp_path))
    assert there(other, *nightly) == [True, False, False, True]


def test_gc_knows_the_newest_report_in_a_copied_store_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy has the times of the copying, in whatever order."""
    made = []
    for seed in range(3):
        now = 1_700_000_000 + seed * 86_400
        with monkeypatch.context() as then:
            then.setattr("tlm.artifacts.produce.time.time", lambda now=now: float(now))
            made.append(make(tmp_path, "report", seed))
    for days, uri in enumerate(made, 8):
        age(Path(uri), days)  # the newest seems the oldest
    gc(keep_runs=1, delete=True, root=str(tmp_path))
    assert there(*made) == [False, False, True]


def test_gc_keeps_what_it_is_told_to_and_what_that_was_made_from(tmp_path: Path) -> None:
    served, new = run(tmp_path, 1), run(tmp_path, 2)
    age(tmp_path, 8)
    age(Path(new["report"]), 7.5)
    gc(keep_runs=1, keep=[served["model"]], unused_days=0, delete=True, root=str(tmp_path))  # not as used just now
    assert there(*served.values()) == [True, True, False]
    other = make(tmp_path / "other", "model", 3)
    for named in ("keep", "remove"):
        with pytest.raises(InputError, match="is not in"):
            gc(**{named: [other]}, root=str(tmp_path))


def test_gc_removes_what_it_is_told_to_with_all_that_was_made_from_it(tmp_path: Path) -> None:
    """Young, used, and of a kept report or not; what it was made from stays."""
    forgotten, other = run(tmp_path, 1), run(tmp_path, 2)
    model = forgotten["model"]
    gc(remove=[model], root=str(tmp_path))
    assert all(there(*forgotten.values())), "a dry run removed something"
    for kept in (model, forgotten["report"]):
        with pytest.raises(InputError, match=f"--keep names {kept}, which --remove removes; leave one"):
            gc(remove=[model], keep=[kept], delete=True, root=str(tmp_path))
    assert all(there(*forgotten.values())), "it was removed although it was to be kept"
    gc(remove=[model], delete=True, root=str(tmp_path))
    assert there(*forgotten.values()) == [True, False, False]
    assert all(there(*other.values()))
    gc(remove=[forgotten["corpus"]], delete=True, root=str(tmp_path))
    assert there(*forgotten.values(), *other.values()) == [False] * 3 + [True] * 3


def test_gc_spares_what_was_made_in_the_last_days(tmp_path: Path) -> None:
    made = run(tmp_path, 1)
    age(tmp_path, 6.9)
    gc(keep_runs=0, delete=True, root=str(tmp_path))
    assert all(there(*made.values()))
    age(tmp_path, 7.1)
    gc(keep_runs=0, delete=True, root=str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file() and ".scratch" not in path.parts] == []


def test_gc_spares_what_it_cannot_read(tmp_path: Path) -> None:
    """Perhaps a person can repair it, or needs it to see what happened."""
    made = run(tmp_path, 1)
    (Path(made["model"]) / "manifest.json").write_text("{")
    age(tmp_path, 30)
    gc(keep_runs=0, delete=True, root=str(tmp_path))
    assert there(*made.values()) == [False, True, False]


def test_gc_spares_what_something_young_was_made_from(tmp_path: Path) -> None:
    corpus = make(tmp_path, "corpus", 1)
    index = make(tmp_path, "index", 1, corpus=corpus)
    age(tmp_path, 30)
    hits = make(tmp_path, "hits", 1, index=index)
    gc(delete=True, root=str(tmp_path))
    assert all(there(corpus, index, hits))


@pytest.mark.parametrize("use", ["opened", "found finished"])
def test_gc_spares_what_was_used_in_the_last_days_and_what_that_was_made_from(tmp_path: Path, use: str) -> None:
    corpus, other = make(tmp_path, "corpus", 1), make(tmp_path, "corpus", 2)
    inputs = {"corpus": Artifact.open(corpus)}
    index = make(tmp_path, "index", 1, corpus=corpus)
    age(tmp_path, 30)
    content = Path(index, "manifest.json").read_bytes()
    if use == "opened":
        Artifact.open(index)
    else:
        produce(Recipe("index", "test", 1, {"seed": 1}, inputs), str(tmp_path), lambda draft: pytest.fail("made again"))
    assert Path(index, "manifest.json").read_bytes() == content
    gc(delete=True, root=str(tmp_path))
    assert there(corpus, index, other) == [True, True, False]
    age(tmp_path, 8)
    gc(delete=True, root=str(tmp_path))
    assert there(corpus, index) == [False, False]


def test_gc_spares_what_is_used_while_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus, other = make(tmp_path, "corpus", 1), make(tmp_path, "corpus", 2)
    age(tmp_path, 30)
    kept = upkeep._kept

    def meanwhile(*given: Any) -> set[str]:
        found = kept(*given)
        Artifact.open(corpus)
        return found

    monkeypatch.setattr(upkeep, "_kept", meanwhile)
    gc(delete=True, root=str(tmp_path))
    assert there(corpus, other) == [True, False]


def test_use_is_noted_at_most_once_an_hour(tmp_path: Path) -> None:
    corpus = make(tmp_path, "corpus", 1)
    note = Path(corpus, "used.json")
    Artifact.open(corpus)
    age(tmp_path, 50 / 60 / 24)
    before = note.stat().st_mtime_ns
    Artifact.open(corpus)
    assert note.stat().st_mtime_ns == before
    age(tmp_path, 70 / 60 / 24)
    Artifact.open(corpus)
    assert note.stat().st_mtime_ns > before


def test_where_use_cannot_be_noted_steps_go_on(tmp_path: Path) -> None:
    corpus = make(tmp_path, "corpus", 1)
    Path(corpus, "used.json").mkdir()  # as good as a store that refuses to be written to
    assert Artifact.open(corpus).path("curve.txt").read_text() == "1"
    assert make(tmp_path, "index", 1, corpus=corpus)


def test_gc_spares_what_unfinished_training_needs(tmp_path: Path) -> None:
    """Training that takes longer than a week used its inputs when it began; its snapshots name them."""
    task, other = make(tmp_path, "task", 1), make(tmp_path, "task", 2)
    recipe = Recipe("checkpoint", "test", 1, {}, {"task": Artifact.open(task)})
    age(tmp_path, 30)
    progress = Progress(recipe.key, str(tmp_path), recipe.inputs)
    progress.save(1, lambda folder: None)
    gc(delete=True, root=str(tmp_path))
    assert there(task, other) == [True, False]
    assert "progress" not in ls(root=str(tmp_path))
    assert progress.latest(tmp_path / "into") == 1
    age(tmp_path, 8)
    gc(delete=True, root=str(tmp_path))
    assert there(task) == [False]
    assert not (tmp_path / "progress").exists()


@pytest.mark.parametrize("closed", ["model", "model/KEY", ""])
def test_what_cannot_be_listed_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """Another user's model, with a umask of 077: what it was made from would be removed."""
    model = make(tmp_path, "model", 1, corpus=make(tmp_path, "corpus", 1))
    named = tmp_path / closed.replace("KEY", Path(model).name)
    (tmp_path / "lost+found").mkdir()

    def refusing(place: Path) -> None:
        def scandir(asked: str) -> Any:
            if Path(asked) == place:
                raise PermissionError(errno.EACCES, "Permission denied", asked)
            return real(asked)

        monkeypatch.setattr(os, "scandir", scandir)

    real = os.scandir
    refusing(named)
    for command in (ls, partial(gc, unused_days=0, delete=True)):
        with pytest.raises(InputError, match=f"^{named} cannot be listed: Permission denied; check its permissions"):
            command(root=str(tmp_path))
    refusing(tmp_path / "lost+found")  # no artifact is there
    assert ls(root=str(tmp_path)).count("MB") == 2


def test_gc_removes_nothing_if_the_days_are_no_number(tmp_path: Path) -> None:
    corpus = make(tmp_path, "corpus", 1)
    with pytest.raises(InputError, match="unused_days is nan; expected 0 or more"):
        gc(unused_days=float("nan"), delete=True, root=str(tmp_path))
    assert there(corpus) == [True]


def test_gc_offers_no_trained_model_that_no_report_covers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = make(tmp_path, "corpus", 1)
    checkpoint = make(tmp_path, "checkpoint", 1, corpus=corpus)
    models = [make(tmp_path, "model", seed, checkpoint=checkpoint) for seed in range(5)]
    metrics = make(tmp_path, "metrics", 1, model=models[0])
    unneeded = make(tmp_path, "corpus", 2)
    age(tmp_path, 30)
    gc(keep_runs=1, delete=True, root=str(tmp_path))
    assert there(corpus, checkpoint, *models, metrics) == [True] * 8
    assert there(unneeded) == [False]
    said = "keeping {} checkpoints, models and metrics of no report or study; --remove URI removes one"
    assert said.format(7) in capsys.readouterr().err
    gc(remove=models[:2], root=str(tmp_path))
    assert said.format(4) in capsys.readouterr().err  # without these and the metrics of one


def printed(*arguments: str) -> object:
    """What a command prints with ``--json``."""
    done = subprocess.run(
        [sys.executable, "-m", "tlm.cli", *arguments, "--json"], capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_ls_and_gc_give_json(tmp_path: Path) -> None:
    made, root = run(tmp_path, 1), str(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    rows = {row["uri"]: row for row in printed("ls", "--root", root)}  # type: ignore[attr-defined]
    assert rows.keys() == set(made.values())
    corpus = Artifact.open(made["corpus"])
    row = rows[made["corpus"]]
    assert datetime.fromisoformat(row.pop("finished")).tzinfo is not None
    assert row == {
        "uri": corpus.uri, "kind": "corpus", "content": corpus.content, "counts": {"seed": 1},
        "bytes": sum(entry.size for entry in corpus.entries()), "details": {},
    }  # fmt: skip
    assert printed("ls", "--root", root, "--kind", "study") == []
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) - len("mine")
    expected = {"folders": sorted(Artifact.open(uri).folder_name for uri in made.values()), "uploads": [],
                "bytes": size, "other_files": 1, "deleted": False}  # fmt: skip
    given = ("gc", "--keep-runs", "0", "--unused-days", "0", "--root", root)
    found = printed(*given)
    assert found == expected | {"bytes": found["bytes"]}  # type: ignore[index]
    assert found["bytes"] >= size  # type: ignore[index]  # opening them just now was noted beside them
    assert there(*made.values()) == [True] * 3
    assert printed(*given, "--delete") == {**found, "deleted": True}  # type: ignore[dict-item]
    assert there(*made.values()) == [False] * 3


def test_ls_refuses_a_kind_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown kind 'modle'; did you mean 'model'\?"):
        ls(kind="modle", root=str(tmp_path))


@pytest.mark.parametrize("settings", [{"name": "x,tlm-another,tlm-x"}, {"name": ["*"]}, {}])
def test_a_manifest_cannot_have_gc_remove_other_indices_nor_stop_it(tmp_path, monkeypatch, capsys, settings):
    """Elasticsearch takes commas and stars in the name of an index for several."""
    monkeypatch.delenv("TLM_ELASTICSEARCH_URL", raising=False)  # a request would end in an error

    def write(draft: Draft) -> None:
        draft.details["engine"] = "elasticsearch"

    produce(Recipe("index", "index", 1, settings), str(tmp_path), write)
    age(tmp_path, 8)
    assert len(gc(delete=True, root=str(tmp_path)).facts["folders"]) == 1
    assert "warning: only the artifact is removed: name '" in capsys.readouterr().err
    assert not list(tmp_path.glob("index/*"))
