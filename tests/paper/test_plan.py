"""What is still to be run: as strings that travel, with what each run needs."""

import pytest

from research.paper.plan import Start, command_for, missing, subsets_for, top_k, trials, wanted
from research.paper.results import Result
from tlm.errors import InputError
from tlm.runs.plan import PlannedRun
from tlm.settings import presets

SUBSETS = {"1": "s3://b/subset/1", "5": "s3://b/subset/5", "50": "s3://b/subset/50", "random": "s3://b/subset/r"}
URIS = {"task": "/a b/task/1", "tokenizer": "s3://b/tokenizer/2", "subsets": SUBSETS}


def done(*seeds: int) -> dict[int, Result]:
    return {seed: Result("", {}) for seed in seeds}


def test_all_that_training_needs_is_in_the_string():
    todo = missing(wanted("4", "pocket", "scierc"), {})
    found = [PlannedRun.parse(text) for text in trials(todo, **URIS)]
    assert [trial.seed for trial in found] == [0] * 4 + [1] * 4 + [2] * 4
    assert [trial.subset for trial in found[:4]] == ["", SUBSETS["1"], SUBSETS["5"], SUBSETS["50"]]
    assert [trial.arm for trial in found[:4]] == ["task-only", "bm25", "bm25", "bm25"]
    for trial in found:
        settings = presets.resolve(trial.preset, trial.overrides.split())
        assert trial.subset in ("", SUBSETS[str(settings.retrieve.top_k)])
        assert PlannedRun.parse(str(trial)) == trial


def test_a_trial_is_read_by_the_components_of_the_pipeline_too():
    text = trials(missing(wanted("3", "pocket", "scierc"), {}, [0]), **URIS)[0]
    run, cell = PlannedRun.parse(text), wanted("3", "pocket", "scierc")[0]
    assert run.settings() == {"preset": cell.preset, "overrides": list(cell.overrides)}
    assert run.inputs() == {"tokenizer": URIS["tokenizer"], "subset": SUBSETS["random"], "seed": 0}
    assert (run.arm, run.subset) == ("random", SUBSETS["random"])


def test_a_trial_on_random_text_has_the_draw_of_its_seed():
    subsets = SUBSETS | {"random-7": "s3://b/subset/drawn-by-7"}
    todo = missing(wanted("3", "pocket", "scierc"), {}, [0, 7])
    runs = [PlannedRun.parse(text) for text in trials(todo, **URIS | {"subsets": subsets})]
    assert [(run.seed, run.subset) for run in runs if run.arm == "random"] == [
        (0, subsets["random"]), (7, subsets["random-7"]),
    ]  # fmt: skip


def test_without_stage_2_and_with_overrides():
    cells = wanted("7", "pocket", "x")
    runs = map(PlannedRun.parse, trials(missing(cells, {}, [0]), **URIS))
    by_key = {cell.key: run for cell, run in zip(cells, runs, strict=True)}
    assert {key: trial.stages for key, trial in by_key.items()} == {"pocket-x-bm25": "12", "pocket-x-bm25-stage-1": "1"}
    found = [PlannedRun.parse(text) for text in trials(missing(wanted("5", "pocket", "x"), {}, [7]), **URIS)]
    assert [trial.overrides for trial in found] == [
        "train.rho1=1", "", "train.rho1=7", "train.rho1=19", "train.rho1=inf",
    ]  # fmt: skip
    assert {trial.seed for trial in found} == {7}


def test_only_what_has_no_result_is_missing_whichever_table_it_was_run_for():
    k = wanted("4", "pocket", "scierc")
    shared = next(cell.key for cell in wanted("3", "pocket", "scierc") if cell.arm == "bm25")
    todo = {cell.key: seeds for cell, seeds in missing(k, {shared: done(0, 2)})}
    assert todo[shared] == [1]
    assert [seeds for key, seeds in todo.items() if key != shared] == [[0, 1, 2]] * 3
    assert missing(k, {cell.key: done(0, 1, 2) for cell in k}) == []


def test_each_subset_is_made_once_and_random_after_the_one_it_equals_in_size():
    assert subsets_for(wanted("4", "pocket", "scierc")) == ["1", "5", "50"]
    assert subsets_for(wanted("3", "pocket", "scierc")) == ["50", "random"]
    assert subsets_for(wanted("3", "pocket", "scierc"), [0, 2]) == ["50", "random", "random-2"]
    assert subsets_for(wanted("6", "pocket", "scierc"), [0, 2]) == ["50"]
    random = next(cell for cell in wanted("3", "pocket", "imdb") if cell.arm == "random")
    assert str(top_k(random)) == subsets_for(wanted("3", "pocket", "imdb"))[0] == "5"


def test_a_table_with_two_corpora_is_run_one_corpus_at_a_time():
    assert [cell.row for cell in wanted("3", "small", "scierc")] == ["random, C_BERT", "BM25, C_BERT"]
    assert [cell.row for cell in wanted("3", "small", "scierc", "C_RoBERTa")] == [
        "random, C_RoBERTa",
        "BM25, C_RoBERTa",
    ]


@pytest.mark.parametrize(
    ("table", "scale", "task", "sentence"),
    [
        ("4", "medium", "scierc", "table 4 cannot be had at scale medium"),
        ("4", "small", "imdb", "table 4 has no task 'imdb' at scale small"),
    ],
)
def test_what_cannot_be_run_is_said(table, scale, task, sentence):
    with pytest.raises(InputError, match=sentence):
        wanted(table, scale, task)


def test_published_models_bring_their_tokenizer_and_their_weights():
    """Fine-tuned they have no stage 1; trained on with the task's text they begin it."""
    cells = wanted("8", "pocket", "scierc")
    model = cells[0].start
    texts = trials(missing(cells, {}, [4]), **URIS, models={model: Start("s3://b/checkpoint/9", "s3://b/tokenizer/9")})
    plm, mlm, tlm = map(PlannedRun.parse, texts)
    assert [(run.arm, run.stages, run.seed) for run in (plm, mlm, tlm)] == [
        ("published", "2", 4), ("published-task-only", "12", 4), ("bm25", "12", 4),
    ]  # fmt: skip
    assert {(run.start, run.tokenizer, run.subset) for run in (plm, mlm)} == {
        ("s3://b/checkpoint/9", "s3://b/tokenizer/9", "")
    }
    assert (tlm.start, tlm.tokenizer, tlm.subset) == ("", URIS["tokenizer"], SUBSETS["50"])
    assert mlm.inputs()["start"] == plm.start
    assert "start" not in tlm.inputs()
    assert subsets_for(cells) == ["50"]
    assert "paper_models=" in command_for("8", "pocket", "scierc", [0])
    assert "paper_models=" not in command_for("7", "pocket", "scierc", [0])


def test_the_command_names_table_scale_task_and_seeds():
    text = command_for("4", "pocket", "scierc", [0, 2])
    for part in ("paper_table=4", "paper_scale=pocket", "run_seeds=0,2", "scierc"):
        assert part in text
    assert "paper_corpus=C_RoBERTa" in command_for("3", "small", "scierc", [0], "C_RoBERTa")
