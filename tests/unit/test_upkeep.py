"""Listing, fetching, and removing what no kept run needs."""

import os
import time
from pathlib import Path

import pytest

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.errors import InputError
from tlm.upkeep import fetch, gc, ls


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


def age(root: Path, hours: float) -> None:
    for path in root.rglob("*"):
        os.utime(path, (time.time() - hours * 3600,) * 2)


def test_fetch_gives_plain_names(tmp_path: Path) -> None:
    uri = make(tmp_path / "store", "model", 1)
    fetch(uri, str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "curve.txt"]
    with pytest.raises(InputError, match="not an empty folder"):
        fetch(uri, str(tmp_path / "out"))


def test_ls_names_each_artifact_once(tmp_path: Path) -> None:
    made = run(tmp_path, 1)
    lines = ls(root=str(tmp_path)).splitlines()
    assert len(lines) == 3
    assert all(any(uri.rsplit("/", 1)[1] in line for line in lines) for uri in made.values())
    assert ls(kind="model", root=str(tmp_path)).count("\n") == 0


def test_gc_keeps_the_newest_runs_and_what_they_were_made_from(tmp_path: Path) -> None:
    old = run(tmp_path, 1)
    age(tmp_path, 48)
    new = run(tmp_path, 2)
    unfinished = tmp_path / "progress" / "abc" / "step-1" / "part.bin"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("x")
    os.utime(unfinished, (0, 0))
    gc(keep_runs=1, root=str(tmp_path))
    assert all(Artifact.open(uri) for uri in old.values()), "a dry run removed something"
    gc(keep_runs=1, delete=True, root=str(tmp_path))
    assert all(Artifact.open(uri) for uri in new.values())
    for uri in old.values():
        with pytest.raises(InputError, match="no finished"):
            Artifact.open(uri)
    assert not unfinished.exists()


def test_gc_keeps_the_newest_studies_beside_the_reports(tmp_path: Path) -> None:
    """A study of a model that no report has any more, and not the older study."""
    old = make(tmp_path, "study", 1, model=make(tmp_path, "model", 1))
    age(tmp_path, 72)
    model = make(tmp_path, "model", 2)
    study = make(tmp_path, "study", 2, model=model)
    for uri in (model, study):
        age(Path(uri), 48)
    report = run(tmp_path, 3)["report"]
    gc(keep_runs=1, older_than_hours=0, delete=True, root=str(tmp_path))
    assert all(Artifact.open(uri) for uri in (model, study, report))
    with pytest.raises(InputError, match="no finished"):
        Artifact.open(old)


def test_gc_spares_what_is_young(tmp_path: Path) -> None:
    made = run(tmp_path, 1)
    gc(keep_runs=0, delete=True, root=str(tmp_path))
    assert all(Artifact.open(uri) for uri in made.values())
    gc(keep_runs=0, older_than_hours=0, delete=True, root=str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file() and ".scratch" not in path.parts] == []
