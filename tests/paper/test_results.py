"""Results of real runs (tiny, from files to metrics): kept, read, and caught when they are not their run's."""

import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from research.paper import page
from research.paper.blocks import markdown
from research.paper.command import paper
from research.paper.keep import keep
from research.paper.plan import make_subsets, missing, subsets_for, trials, wanted
from research.paper.results import Result, arm_of, by_key, digest, fault, read_results, summed, write_results
from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.stores.store import canonical_json
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.errors import InputError, TlmError
from tlm.evaluation.report.report import report
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.evaluate import evaluate
from tlm.evaluation.score.mix import mix
from tlm.retrieval.search.index import build_index
from tlm.runs.plan import PlannedRun
from tlm.settings.options import Compute
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.stages import finetune, train

BM25, RANDOM = "BM25, C_BERT", "random, C_BERT"
QUICK = {"compute": Compute("cpu", save_minutes=0.0)}


class Runs:
    """Tables 3, 5 and 7 at the tiny scale, in part, for a task of our own called ``task``."""

    def __init__(self, folder: Path) -> None:
        write_tiny(folder / "data", documents=200, train=30, held_out=12)
        self.root = str(folder / "store")
        corpus = load_corpus([str(folder / "data" / "corpus.jsonl")], root=self.root)
        self.task = load_task(str(folder / "data" / "task"), root=self.root)
        self.index = build_index(corpus, root=self.root)
        self.tokenizer = build_tokenizer(corpus, self.task, vocab_size=400, root=self.root)
        self.subsets = make_subsets(self.index, self.task, table="3", scale="tiny", seeds="0", root=self.root)
        self.metrics = {}
        uris = {"task": self.task, "tokenizer": self.tokenizer, "subsets": self.subsets}
        for table, rows in {"3": {RANDOM, BM25}, "7": {"without stage 2"}, "5": {"external only"}}.items():
            todo = [cell for cell in wanted(table, "tiny", "task") if cell.row in rows]
            for cell, text in zip(todo, trials(missing(todo, {}, [0]), **uris), strict=True):
                self.metrics[cell.key] = self._run(PlannedRun.parse(text))
        self.metrics["baseline"] = baseline(self.task, root=self.root)

    def _run(self, run: PlannedRun) -> str:
        settings = {**run.settings(), "root": self.root, **QUICK}
        trained = train(run.task, **run.inputs(), **settings)
        if "2" in run.stages:
            trained = finetune(trained, run.task, **settings)
        return evaluate(trained, run.task, root=self.root)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("paper"))


@pytest.fixture
def kept(runs, tmp_path):
    """A folder with the results of table 3 and of the run without stage 2."""
    folder = str(tmp_path / "results")
    keep([runs.metrics["tiny-task-random"], runs.metrics["tiny-task-bm25"]], table="3", results=folder, revision="abc")
    keep([runs.metrics["tiny-task-bm25-stage-1"]], table="7", results=folder, revision="abc")
    return tmp_path / "results"


def change(path: Path, *, sealed: bool = True, **values: object) -> None:
    """Change the first result of a file."""
    first, *others = path.read_bytes().splitlines(keepends=True)
    whole = {**json.loads(first), **values}
    seal = {"digest": digest(whole)} if sealed else {}
    path.write_bytes(b"".join([canonical_json({**whole, **seal}) + b"\n", *others]))


def made_from(path: Path) -> dict[str, str]:
    return read_lines(path)[0]["made_from"]


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_kept_run_says_what_it_scored_and_what_it_was_made_from(runs, kept):
    result = {one.key: one for one in read_results(kept)}["tiny-task-bm25"]
    values, metrics = result.values, Artifact.open(runs.metrics["tiny-task-bm25"])
    assert result.place == f"{kept / '3.jsonl'}:1"
    assert result.score("dev") == pytest.approx(100 * metrics.details["dev"])
    assert result.score("test") == pytest.approx(100 * metrics.details["test"])
    assert values["made_from"][metrics.folder_name] == metrics.content
    kinds = {name.partition("/")[0] for name in values["made_from"]}
    assert kinds >= {"metrics", "model", "checkpoint", "subset", "hits", "index", "corpus", "task", "tokenizer"}
    assert values["settings"]["retrieve.top_k"] == 5
    assert values["settings"]["train.steps"] == 24
    assert values["settings"]["finetune.epochs"] == 2
    assert values["revision"] == "abc"
    assert "paper_table=3" in values["command"]
    assert {"tlm", "python", "torch"} <= values["versions"].keys()
    assert runs.root not in (kept / "3.jsonl").read_text()


def test_keeping_twice_gives_the_same_bytes(runs, kept):
    before = {path: path.read_bytes() for path in kept.iterdir()}
    told = keep([runs.metrics["tiny-task-bm25"]], table="3", results=str(kept), revision="abc")
    assert told == f"{kept / '3.jsonl'}: tiny-task-bm25, seed 0"
    assert {path: path.read_bytes() for path in kept.iterdir()} == before
    assert {path.name for path in before} == {"3.jsonl", "7.jsonl"}


def test_a_result_replaces_the_one_of_its_cell_and_seed_and_leaves_other_lines_alone(runs, kept):
    bm25, random = (kept / "3.jsonl").read_bytes().splitlines()
    keep([runs.metrics["tiny-task-bm25"]], table="3", results=str(kept), revision="def")
    changed, other = (kept / "3.jsonl").read_bytes().splitlines()
    assert (json.loads(bm25)["revision"], json.loads(changed)["revision"]) == ("abc", "def")
    assert other == random


def test_lines_are_in_the_order_of_keys_and_seeds_whatever_the_order_of_keeping(kept):
    whole = (kept / "3.jsonl").read_bytes()
    lines = read_lines(kept / "3.jsonl")
    later = [{**lines[0], "seed": seed} for seed in (10, 2)]
    for some in (lines[1:], later, lines[:1]):
        write_results(kept / "new", "3", some)
    found = read_results(kept / "new")
    assert [(one.key, one.seed) for one in found] == [
        *(("tiny-task-bm25", seed) for seed in (0, 2, 10)), ("tiny-task-random", 0)
    ]  # fmt: skip
    assert whole.splitlines() == [
        line for line in (kept / "new" / "3.jsonl").read_bytes().splitlines() if line in whole
    ]


def test_processes_that_keep_at_once_lose_nothing(kept):
    """Each reads the file and replaces it, so they must wait for each other."""
    line = read_lines(kept / "3.jsonl")[0]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda seed: write_results(kept / "new", "3", [{**line, "seed": seed}]), range(40)))
    assert [one.seed for one in read_results(kept / "new")] == [*range(40)]
    assert [path.name for path in (kept / "new").iterdir()] == ["3.jsonl"]


def test_of_several_runs_all_are_kept_or_none(runs, kept):
    before = (kept / "3.jsonl").read_bytes()
    line = read_lines(kept / "3.jsonl")[0]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_results(kept, "3", [{**line, "seed": 1}, {**line, "seed": 2, "mlm_loss": math.nan}])
    with pytest.raises(InputError, match="fits no cell of table 3"):
        keep([runs.metrics[name] for name in ("baseline", "tiny-task-bm25-stage-1")], table="3", results=str(kept))
    assert (kept / "3.jsonl").read_bytes() == before


def test_each_run_finds_its_own_cell(runs, tmp_path):
    keep([runs.metrics["tiny-task-bm25-rho1-inf"], runs.metrics["tiny-task-bm25"]], table="5", results=str(tmp_path))
    rows = {one.key: one.values["cell"]["row"] for one in read_results(tmp_path)}
    assert rows == {"tiny-task-bm25-rho1-inf": "external only", "tiny-task-bm25": "rho1 3"}


def test_a_report_stands_for_its_encoders_and_the_baseline_is_kept_beside_them(runs, tmp_path):
    together = [runs.metrics["tiny-task-bm25"], runs.metrics["tiny-task-random"], runs.metrics["baseline"]]
    shallow = static(runs.task, root=runs.root)
    without_cells = [shallow, mix([shallow, runs.metrics["baseline"]], root=runs.root)]
    keep([report([*together, *without_cells], root=runs.root)], table="3", results=str(tmp_path))
    results = read_results(tmp_path)
    assert {one.key for one in results} == {"tiny-task-bm25", "tiny-task-random", "baseline-task"}
    assert [fault(one, runs.root) for one in results] == [""] * 3
    text = markdown(page.report(by_key(results), ["3"], ["tiny"]).blocks)
    score = next(one.score("dev") for one in results if one.key == "baseline-task")
    assert f"| tf-idf + linear | {score:.1f} |" in text


def test_a_run_whose_settings_are_gone_is_not_put_down_to_a_scale(runs, tmp_path):
    root = tmp_path / "store"
    shutil.copytree(runs.root, root)
    for kind in ("model", "checkpoint"):
        shutil.rmtree(root / kind)
    metrics = runs.metrics["tiny-task-bm25"].replace(runs.root, str(root))
    with pytest.raises(
        InputError, match=r"fits table 3 at the scales demo, mini, pocket, tiny: .* are gone; repeat the run"
    ):
        keep([metrics], table="3", results=str(tmp_path / "results"))


def test_groups_are_named_by_what_tells_them_apart_not_by_what_then_has_no_effect(runs):
    uri = report([runs.metrics["tiny-task-bm25-rho1-inf"], runs.metrics["tiny-task-bm25"]], root=runs.root)
    told = json.loads(Artifact.open(uri).path("report.json").read_text())
    assert sorted(group["name"] for group in told["groups"]) == ["bm25 (rho1=3)", "bm25 (rho1=inf)"]
    assert {stage["preset"] for group in told["groups"] for stage in group["stages"].values()} == {"tiny"}


def test_a_run_that_no_cell_asks_for_is_refused(runs, tmp_path):
    with pytest.raises(InputError, match=r"without stage 2, task task\) fits no cell of table 3"):
        keep([runs.metrics["tiny-task-bm25-stage-1"]], table="3", results=str(tmp_path))
    with pytest.raises(InputError, match=r"scale tiny, row 'BM25, C_BERT', but has train\.rho1=inf instead of 3"):
        keep([runs.metrics["tiny-task-bm25-rho1-inf"]], table="3", results=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_has_a_result_is_not_asked_for_again(kept):
    results = by_key(read_results(kept))
    assert [seeds for _, seeds in missing(wanted("7", "tiny", "task"), results, [0, 1])] == [[1], [1]]
    assert missing(wanted("3", "tiny", "task"), results, [0]) == []


def test_results_that_are_as_they_were_written_have_no_fault(runs, kept):
    assert {fault(one, runs.root) for one in read_results(kept)} == {""}
    paper(check=True, results=str(kept), root=runs.root)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: change(path, sealed=False, scores={}), "was changed after it was written"),
        (lambda path: change(path, settings={"train.rho1": 17}), "was made with train.rho1=17 instead of 3"),
        (lambda path: change(path, cell={"table": "9", "scale": "tiny", "column": "x"}), "is a result of table 9"),
        (lambda path: change(path, cell={"table": "3", "scale": "tiny", "column": "x"}), "belongs to no cell"),
        (lambda path: change(path, made_from=dict.fromkeys(made_from(path), "0" * 64)), "was made from other metrics"),
    ],
)
def test_a_result_that_is_not_its_run_s_is_found_and_fails_the_check(runs, kept, damage, sentence):
    path = kept / "3.jsonl"
    damage(path)
    faults = [told for one in read_results(kept) if (told := fault(one, runs.root))]
    assert len(faults) == 1
    assert faults[0].startswith(f"{path}:1 {sentence}")
    for table in ("", "3", "dilution"):
        with pytest.raises(TlmError, match="do not match their runs: 1, such as") as caught:
            paper(table, check=True, results=str(kept), root=runs.root)
        assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda first, second: [first, b"{}"], r"3\.jsonl:2 is no result of `keep` \(KeyError\('key'\)\)"),
        (lambda first, second: [first, second[:-9]], r"3\.jsonl:2 is no result of `keep` \(JSONDecodeError"),
        (lambda first, second: [first, b"", second], r"3\.jsonl:2 is no result of `keep` \(JSONDecodeError"),
        (lambda first, second: [b"\xff" + first, second], r"3\.jsonl:1 is no result of `keep` \(UnicodeDecodeError"),
        (lambda first, second: [first.replace(b":", b": ", 1), second], r"3\.jsonl:1 is no .*'not in canonical JSON'"),
        (lambda first, second: [first, first, second], r"3\.jsonl:2 is out of order: .* has tiny-task-bm25, seed 0"),
        (lambda first, second: [second, first], r"3\.jsonl:2 is out of order: .*; move it, or remove one of the two"),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_written_beside_it(runs, kept, damage, sentence):
    path = kept / "3.jsonl"
    path.write_bytes(b"\n".join(damage(*path.read_bytes().splitlines())))
    before = path.read_bytes()
    with pytest.raises(InputError, match=sentence):
        read_results(kept)
    with pytest.raises(InputError, match=sentence):
        keep([runs.metrics["baseline"]], table="3", results=str(kept))
    assert path.read_bytes() == before


def fabricate(kept: Path, score: float) -> None:
    """A result of SciERC at the paper's small scale, sealed."""
    cell = next(cell for cell in wanted("3", "small", "scierc") if cell.arm == "bm25")
    like = next(one.values for one in read_results(kept) if one.key == "tiny-task-bm25")
    place = {"key": cell.key, "cell": {"table": "3", "scale": "small", "column": "scierc", "row": cell.row}}
    scores = {"dev": {"macro_f1": score}}
    write_results(kept, "3", [{**like, **place, "settings": cell.settings(), "scores": scores, "metric": "macro_f1"}])


def test_a_miss_fails_the_check_only_at_the_paper_s_scale(kept, capsys):
    """The tiny runs are far from 86 and nobody minds."""
    fabricate(kept, 0.861)
    paper(check=True, results=str(kept), markdown=True)
    out = capsys.readouterr().out
    assert r"| BM25, C\_BERT | 94.40 ± 0.09 | 86.07 ± 0.48 → 86.1 (1) OK | 83.64 ± 0.26 |" in out
    assert out.count("| 1 OK, 11 not run |") == 3  # tables 3, 4 and 6 share the run
    fabricate(kept, 0.80)
    with pytest.raises(TlmError, match=r"missed .*: 1, such as small-scierc-bm25 \(table 3, 4, 5, 6\)"):
        paper(check=True, results=str(kept), markdown=True)
    paper(check=True, results=str(kept), markdown=True, tolerance=7.0)
    paper("3", scale="small", results=str(kept))


def test_the_check_prints_every_table(tmp_path, capsys):
    paper(check=True, results=str(tmp_path))
    out = capsys.readouterr().out
    for table in (2, 3, 4, 5, 6, 7, 8, 10):
        assert f"\n{table} " in out
    assert "56 not run" in out
    assert "0 results are kept, 0 do not match" in out


def test_a_table_lists_what_is_missing_with_commands(kept, capsys):
    paper("7", scale="tiny", task="task", results=str(kept))
    out = capsys.readouterr().out
    assert "Still to be run for table 7 at scale tiny: 8 runs" in out
    assert "paper_table=7" in out
    paper("2", scale="pocket", results=str(kept))
    assert "paper_table=2 --set paper_scale=pocket --set run_seeds=0,1,2 --set paper_models=" in capsys.readouterr().out
    with pytest.raises(InputError, match="table 2 has no task 'scirc'; did you mean 'scierc'"):
        paper("2", scale="small", task="scirc", results=str(kept))


def test_the_random_subset_is_as_large_as_its_twin(runs):
    assert list(runs.subsets) == subsets_for(wanted("3", "tiny", "task")) == ["5", "random"]
    sizes = [Artifact.open(uri).details["passages"] for uri in runs.subsets.values()]
    assert sizes[0] == sizes[1] > 0


def test_a_kept_run_brings_its_predictions_and_they_give_its_scores(kept):
    found = read_results(kept)
    assert len(found) == 3
    for result in found:
        for split in ("dev", "test"):
            for metric in ("macro_f1", "accuracy", "matthews"):
                arm = arm_of([result], split, metric)
                assert 100 * arm.scores[0] == pytest.approx(result.score(split, metric))
        assert (summed([result] * 3, "test")["low"] is None) == (result.values["arm"] == "random")  # one draw of text
        assert not summed([result] * 3, "test")["seeds_only"]
    without = Result(found[0].place, {name: value for name, value in found[0].values.items() if name != "examples"})
    assert arm_of([without, found[0]], "test") is None
    assert summed([without] * 3, "test")["seeds_only"]
