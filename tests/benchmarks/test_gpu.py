"""The hour on a GPU, rehearsed on the CPU with tiny models: packed, carried, measured in pieces, kept, and resumed."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch

from research.benchmarks import gpu as row
from research.benchmarks import kept, training_gpu
from research.benchmarks.row import limit
from research.gpu import command, correct, pack
from research.gpu.piece import piece
from research.gpu.stand import Stand
from research.paper.results import read_results
from tests.published import write_bert
from tests.tiny import write_tiny
from tlm.artifacts.artifact import MANIFEST
from tlm.errors import InputError


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but archives, as it arrives on another machine."""
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    write_tiny(here / "tiny")
    passages = [json.loads(line) for line in (here / "tiny" / "corpus.jsonl").read_text().splitlines()]
    corpus = here / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": one["text"], "s": one["source"]}) + "\n" for one in passages))
    for name in ("scierc", "acl-arc"):
        shutil.copytree(here / "tiny" / "task", here / name)
    write_bert(here / "toy-bert", sorted({word for one in passages for word in one["text"].split()}), positions=128)
    said = pack.gpu_pack(str(here), str(here / "toy-bert"), corpus=str(corpus), preset="tiny", folder=str(here / "gpu"))
    assert [line.rpartition(", ")[2] for line in said.splitlines()] == ["0 runs", "15 runs", "15 runs", "9 runs"]
    for archive in (here / "gpu").glob("*.tar.xz"):
        shutil.copy(archive, there)
    shutil.rmtree(here)
    return there


def measured(carried: Path, folder: Path, **how: object) -> str:
    given = {"device": "cpu", "folder": str(carried), "results": str(folder / "research" / "results"), **how}
    return command.gpu(**given)  # type: ignore[arg-type]


def test_archives_hold_what_training_reads_and_of_the_rest_the_manifests(carried: Path) -> None:
    runs = pack.unpack("mini", str(carried))
    assert [(run.arm, run.seed) for run in runs[:4]] == [("bm25", 0), ("random", 0), ("task-only", 0), ("bm25", 1)]
    store = carried / pack.STORE
    files = {kind: {path.name for path in store.glob(f"{kind}/*/*")} for kind in ("corpus", "index", "hits", "subset")}
    assert set().union(*files.values()) == {MANIFEST}
    assert all(Path(uri, MANIFEST).exists() for run in runs for uri in (run.task, run.tokenizer))
    published = [run for name in pack.PARTS for run in pack.unpack(name, str(carried)) if run.model]
    assert all(Path(run.subset, MANIFEST).exists() for run in published if run.subset)
    arms = {run.arm for run in published}
    assert arms == {"published-toy-bert", "published-toy-bert-bm25", "published-toy-bert-random"}


@pytest.mark.slow
def test_losses_are_compared_with_those_of_the_cpu(carried: Path) -> None:
    found = {result.label: result for result in correct.same_losses(Stand("cpu", str(carried)))}
    assert found.pop("bf16, beside fp32").ours
    assert [result.ours for result in found.values()] == [0.0, 0.0, 0.0]  # here both sides are the CPU
    assert {result.verdict for result in found.values()} == {"PASS"}


def test_no_time_and_no_data_are_said(carried: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no archive of `gpu-pack`"):
        measured(tmp_path, tmp_path)
    few = measured(carried, tmp_path, minutes=0.0, only="losses,speed-")
    assert few == "0 of 3 pieces are kept; left: losses, speed-BERT-base, speed-mini"
    assert "0 of 46 pieces are kept; left: losses, speed-BERT-base" in measured(carried, tmp_path, minutes=0.0)
    page = (tmp_path / "research" / "BENCHMARKS.md").read_text()
    assert "Not measured: `python -m research gpu`." in page


def test_pieces_of_a_row_come_together_and_seeds_have_their_mean(tmp_path: Path) -> None:
    for seed, score in enumerate((60.0, 70.0)):
        found = [limit("bm25 on scierc", score, "", note=f"seed {seed}"), limit(f"own {seed}", seed, "s")]
        kept.keep(piece(f"run-{seed}", found, "cpu", f"abc{seed}"), tmp_path / "gpu")
    whole = kept.read("gpu", tmp_path)
    assert whole is not None
    assert (whole.name, whole.revision, whole.quick) == ("gpu", "abc0, abc1", True)
    assert [(result.label, result.ours) for result in whole.results] == [
        ("bm25 on scierc", 65.0), ("own 0", 0), ("own 1", 1)
    ]  # fmt: skip
    assert "2 runs: 60 (" in whole.results[0].note
    (tmp_path / "none").mkdir()
    assert kept.read("none", tmp_path) is None


@pytest.mark.parametrize(("name", "tflops"), [("NVIDIA L40", 181), ("NVIDIA L40S", 362), ("NVIDIA L4", 121)])
def test_a_chip_has_its_own_peak(name: str, tflops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of one may begin with that of another."""
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: name)
    assert training_gpu.peak_of(torch.device("cuda"))[0] == tflops * 1e12


def test_documents_say_whether_there_was_a_gpu() -> None:
    """Where numbers are kept, the sentences that there are none must go."""
    home = Path(__file__).parents[2]
    rows = (row.ROW.name, training_gpu.ROW.name)
    measured = any(kept.read(name, home / "research" / "results" / kept.NUMBERS) for name in rows)
    readme = (home / "README.md").read_text()
    assert ("(not tested on a GPU yet)" in readme) == (not measured)
    assert ("or on a GPU ([details](research/EVIDENCE.md))" in readme) == (not measured)


@pytest.mark.slow
def test_the_whole_hour_in_pieces(carried: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First one part of it, then the rest; what is kept is not measured again."""
    monkeypatch.setenv("TLM_THREADS", "1")
    monkeypatch.setattr(command, "REHEARSAL_SECONDS", 40.0)  # a start takes ten
    numbers = tmp_path / "research" / "results" / kept.NUMBERS
    assert "left: none" in measured(carried, tmp_path, only="losses")
    losses = numbers / row.ROW.name / "losses.json"
    before = losses.stat().st_mtime_ns
    for name, enough in {"published-acl-arc": 2, "published-scierc": 1, "mini": 5}.items():  # two seeds of mini
        runs = carried / f"{name}{pack.RUNS}"
        pack.unpack(name, str(carried))
        runs.write_text("".join(runs.read_text().splitlines(keepends=True)[:enough]))
    assert "left: none" in measured(carried, tmp_path, minutes=60.0, archive=str(tmp_path / "back.tar.gz"))
    with tarfile.open(tmp_path / "back.tar.gz") as tar:
        back = {Path(name).name for name in tar.getnames()}
    assert {"losses.json", "mini-bm25-0.json", "small-scierc.json"} <= back
    assert losses.stat().st_mtime_ns == before
    found, speed = (kept.read(one.ROW.name, numbers) for one in (row, training_gpu))
    assert found is not None
    assert speed is not None
    labels = {result.label: result for result in found.results}
    published = {"published-toy-bert on acl-arc", "published-toy-bert on scierc", "published-toy-bert-bm25 on acl-arc"}
    assert {"bm25 on scierc", "task-only on scierc"} | published <= labels.keys()
    assert "2 runs" in labels["random on scierc"].note
    assert labels["small-scierc: the whole stage 1"].ours
    kept_runs = read_results(tmp_path / "research" / "results")
    assert [(one.values["arm"], one.seed) for one in kept_runs][:3] == [("bm25", 0), ("bm25", 1), ("random", 0)]
    assert labels["predictions in TF32 (on a CPU, fp32) that equal those in fp64"].ours > 99
    assert {"rehearsal, external batches", "rehearsal, internal batches"} < {result.label for result in speed.results}
    page = (tmp_path / "research" / "BENCHMARKS.md").read_text()
    assert "A rehearsal on the CPU: its numbers mean nothing." in page
