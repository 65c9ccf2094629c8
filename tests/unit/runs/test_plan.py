"""The plan: everything checked before any work, arms × seeds as flat strings."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from research.multitask.plan import plan_apart, plan_together
from tests.toys import Row, make, make_task, words
from tests.toys_training import passages
from tlm.errors import InputError
from tlm.retrieval.search.index import build_index
from tlm.runs.advise import advise, advise_command
from tlm.runs.plan import PlannedRun, advised, on_pods, parse_arms, plan, settings
from tlm.settings import presets
from tlm.settings.presets import resolve

SOURCES = {
    "task": "/a b/task/1",
    "tokenizer": "s3://b/tokenizer/2",
    "preset": "pocket",
    "overrides": "train.rho1=4 train.steps=9",
}


def test_arms_times_seeds_each_with_its_subset(tmp_path: Path) -> None:
    """In whatever order the subsets come."""
    bm25, random = (subset_of(arm, tmp_path) for arm in ("bm25", "random"))
    for subsets in ([bm25, "", random], [random, bm25]):
        runs = [PlannedRun.parse(text) for text in plan("random, bm25,task-only", "0,7", subsets=subsets, **SOURCES)]
        assert [(run.arm, run.seed) for run in runs] == [
            (arm, seed) for seed in (0, 7) for arm in ("random", "bm25", "task-only")
        ]
        assert [run.subset for run in runs[:3]] == [random, bm25, ""]
    assert {(run.task, run.tokenizer, run.stages) for run in runs} == {("/a b/task/1", "s3://b/tokenizer/2", "12")}
    assert runs[0].settings() == {"preset": "pocket", "overrides": ["train.rho1=4", "train.steps=9"]}


def test_a_run_has_the_text_that_its_seed_drew(tmp_path: Path) -> None:
    bm25, *drawn = subset_of("bm25", tmp_path), subset_of("random", tmp_path, 0), subset_of("random", tmp_path, 7)
    runs = [
        PlannedRun.parse(text) for text in plan("random,bm25", "7,0", subsets=[drawn[1], bm25, drawn[0]], **SOURCES)
    ]
    assert [(run.seed, run.subset) for run in runs] == [(7, drawn[1]), (7, bm25), (0, drawn[0]), (0, bm25)]


def test_published_models_have_presets_names_and_text_of_their_own(tmp_path: Path) -> None:
    bm25, other = subset_of("bm25", tmp_path), "s3://b/models/big/"
    arms, how = "bm25,published,published-bm25,published-task-only,embeddings", {"published": f"owner/mini, {other}"}
    sources = {**SOURCES, "overrides": "train.steps=9 model.max_length=64 model.cut=head+tail"}
    texts = plan(arms, "0,7", subsets=[bm25], **sources, **how)
    scratch, *published = [PlannedRun.parse(text) for text in texts if "seed=7" in text]
    assert (scratch.arm, scratch.model, scratch.overrides) == ("bm25", "", sources["overrides"])
    assert [(run.arm, run.stages, run.preset, run.subset, run.model) for run in published] == [
        (f"published-{name}{end}", stages, preset, subset, place)
        for name, place in (("mini", "owner/mini"), ("big", other))
        for end, stages, preset, subset in (
            ("", "2", "finetune-published", ""), ("-bm25", "12", "adapt", bm25), ("-task-only", "12", "adapt", ""),
        )
    ]  # fmt: skip
    kept = "model.max_length=64 model.cut=head+tail model.positions=128"  # a preset's passages are longer
    assert {(run.tokenizer, run.overrides) for run in published} == {("", kept)}
    assert {resolve(**run.settings()).model.max_length for run in published} == {64}
    last = [PlannedRun.parse(text) for text in texts[-2:]]
    assert [(run.arm, run.stages, run.seed) for run in last] == [("embeddings-mini", "", 0), ("embeddings-big", "", 0)]
    own = plan(arms, "0", subsets=[bm25], **sources, **how, published_preset="tiny")
    assert {PlannedRun.parse(text).preset for text in own} == {"pocket", "tiny", ""}


def test_a_step_that_does_nothing_with_a_network_gets_no_gpu(tmp_path: Path) -> None:
    """And a stage as many as its batch fills: one for each 32 rows."""
    overrides = "train.external_batch=160 train.internal_batch=16 finetune.batch=64"
    sources = {**SOURCES, "overrides": overrides, "published": "owner/mini"}
    arms = "bm25,task-only,published,published-task-only,embeddings"
    texts = plan(arms, "0", subsets=[subset_of("bm25", tmp_path)], **sources)
    items = on_pods(texts, "8")
    assert [item.pop("run") for item in items] == texts
    assert {PlannedRun.parse(text).arm: item for text, item in zip(texts, items, strict=True)} == {
        "bm25": {"train": "5", "finetune": "2", "evaluate": "1"},
        "task-only": {"train": "1", "finetune": "2", "evaluate": "1"},
        "published-mini": {"train": "0", "finetune": "1", "evaluate": "1"},
        "published-mini-task-only": {"train": "1", "finetune": "1", "evaluate": "1"},
        "embeddings-mini": {"train": "0", "finetune": "0", "evaluate": "0"},
    }
    assert {number for item in on_pods(texts, "0") for step, number in item.items() if step != "run"} == {"0"}


@pytest.mark.parametrize(
    ("arms", "published", "network", "expected"),
    [
        ("bm25", "a", True, (["bm25"], [""], True, ["bm25"])),
        ("bm25", "a", False, (["bm25"], [], True, ["bm25"])),
        ("random,published-dsir", "a", True, (["random"], ["dsir"], False, ["random", "dsir"])),
        ("published", "a", True, ([], [""], False, ["bm25"])),
        ("published-task-only", "a", True, ([], ["task-only"], False, ["task-only"])),
        ("bm25", "", True, (["bm25"], [], False, ["bm25"])),
    ],
)
def test_a_published_model_that_no_arm_names_has_those_it_can_have(
    arms: str, published: str, network: bool, expected: tuple[list[str], list[str], bool, list[str]]
) -> None:
    """And where no arm needs text, BM25's is there."""
    found = parse_arms(arms, published, network=network)
    assert (found.scratch, found.further, found.embeddings, found.texts) == expected


def subset_of(arm: str, root: Path, seed: int | None = None) -> str:
    """The URI of a subset of this arm, without passages; perhaps drawn by a seed."""
    settings = {"arm": arm} | ({} if seed is None else {"seed": seed})
    hits = make("hits", root, lambda draft: draft.details.update(settings), settings)
    return make("subset", root, lambda draft: draft.details.update(arm=arm), settings, {"hits": hits})


def test_overrides_reach_the_flat_values() -> None:
    assert settings("pocket", overrides=["tokenizer.vocab_size=223"])[:2] == ("wordpiece", 223)


@pytest.fixture
def task(tmp_path: Path) -> str:
    rows: list[Row] = [(text, None, "ab"[number % 2], "train") for number, text in enumerate(words(30, 1))]
    rows += [("one two", None, "a", "dev"), ("three", None, "b", "test")]
    return make_task(tmp_path, rows, "macro_f1", ["a", "b"])


def test_auto_stands_for_the_paper_s_rules_and_what_is_given_beside_it_holds(task: str) -> None:
    assert settings("pocket", overrides=["auto", "tokenizer.vocab_size=300"])[1] == 300  # auto waits for it
    top_k, query, _, overrides, reasons = advised(task, "pocket", ["train.steps=900", "auto", "retrieve.query=rake"])
    start = presets.resolve("pocket", ["train.steps=900", "retrieve.query=rake"])
    rule = advise(30, 7, start)
    assert overrides.split() == [*rule.overrides, "train.steps=900", "retrieve.query=rake"]
    assert "retrieve.query=full" in rule.overrides
    assert (top_k, query) == (50, "rake")
    assert len(reasons.splitlines()) == 1 + len(rule.reasons)
    assert "30 training examples are fewer than 5,000" in reasons


def test_auto_takes_a_lower_k_for_a_small_corpus(task: str, tmp_path: Path) -> None:
    corpus = passages(tmp_path, "corpus", count=120)
    index = build_index(corpus, root=str(tmp_path))
    for place in (corpus, index):
        top_k, *_, reasons = advised(task, "pocket", ["auto"], place)
        assert top_k == 4
        assert "the corpus has 120 passages" in reasons
        assert "retrieve.top_k=4" in advise_command(task, corpus=place).split()
    top_k, *_, reasons = advised(task, "pocket", ["auto", "retrieve.top_k=20"], corpus)
    assert top_k == 20
    assert reasons.splitlines()[0].endswith(". Settings given for the run take precedence: retrieve.top_k=20.")
    assert "preset pocket has 50" in advised(task, "pocket", ["auto", "retrieve.top_k=20"])[-1]
    assert advised(task, "pocket", ["auto"])[0] == 50
    assert "retrieve.top_k=50" in advise_command(task).split()


def test_without_auto_settings_stay_as_given(task: str) -> None:
    assert advised(task, "pocket", ["retrieve.top_k=3"]) == (3, "full", "examples", "retrieve.top_k=3", "")
    with pytest.raises(InputError, match="setting 'atuo' has no value"):
        settings("pocket", overrides=["atuo"])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"arms": "bm52"}, "arms: 'bm52' is no arm; did you mean 'bm25'?"),
        ({"arms": ""}, "arms: '' is empty"),
        (
            {"overrides": ["tokenizer.vocab_size=123"]},
            "tokenizer.vocab_size is 123; expected 200 to 10,000,000 for wordpiece",
        ),
        ({"seeds": "0,0"}, "seeds: '0,0' is empty or names one twice"),
        *(
            ({"seeds": f"1,{seed}"}, f"seeds: '{seed}' is no whole number")
            for seed in ("-1", "00", "1.0", "٣", "9" * 19)
        ),
        ({"arms": "bm25,embeddings"}, "arms: 'embeddings' needs a published model, and run_published names none"),
        (
            {"arms": "publised-bm25", "published": "a"},
            "arms: 'publised-bm25' is no arm; did you mean 'published-bm25'?",
        ),
        (
            {"arms": "published-bm25", "published": "a", "network": False},
            "arms: 'published-bm25' trains a network, and this pipeline trains none; take the arm embeddings",
        ),
        ({"published": "a/one,b/one"}, "run_published: two models are called 'one'; rename the folder of one"),
        ({"published": "a/one-random"}, "run_published: the last part of 'a/one-random' names its arm; expected"),
        ({"published": "a/one + two"}, "run_published: the last part of 'a/one + two' names its arm; expected"),
        ({"published": "./nowhere", "published_preset": "tiny"}, "./nowhere: there is no such file or folder"),
        ({"published": "a/b", "published_preset": "tyni"}, "preset 'tyni' is unknown"),
    ],
)
def test_what_is_wrong_is_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        settings("pocket", **wrong)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("arm", "file", "readable"),
    [
        ("published", "pytorch_model.bin", False),
        ("embeddings", "pytorch_model.bin", False),
        ("published", "0_StaticEmbedding/model.safetensors", False),
        ("embeddings", "0_StaticEmbedding/model.safetensors", True),
        ("published", "model-00001-of-00002.safetensors", True),
    ],
)
def test_a_published_model_without_weights_to_read_is_refused(
    arm: str, file: str, readable: bool, tmp_path: Path
) -> None:
    weights = tmp_path / "old" / file
    weights.parent.mkdir(parents=True)
    weights.touch()
    (tmp_path / "old" / "config.json").write_text('{"model_type": "bert"}')
    refused = pytest.raises(InputError, match=r"old has no weights \(.*\.safetensors\); older ones .* are pickles")
    with nullcontext() if readable else refused:
        settings("pocket", arms=arm, published=str(tmp_path / "old"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("", "has no config.json with a model_type; expected a model as transformers writes it"),
        ("[]", "has no config.json with a model_type"),
        ('{"hidden_size": 8}', "has no config.json with a model_type"),
        ('{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}', "is a 'gpt2' that generates text; take an"),
        ('{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}', "is a 't5' that generates text"),
        ('{"model_type": "xlm", "architectures": ["XLMWithLMHeadModel"]}', ""),
        ('{"model_type": "bert", "architectures": null}', ""),
    ],
)
def test_a_published_model_that_cannot_be_fine_tuned_is_refused(config: str, said: str, tmp_path: Path) -> None:
    """As far as its config tells without the library, which the data image lacks."""
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").touch()
    for arm in ("published", "published-bm25"):
        with pytest.raises(InputError, match=said) if said else nullcontext():
            settings("pocket", arms=arm, published=str(tmp_path))
    settings("pocket", arms="embeddings", published=str(tmp_path))


def test_several_tasks_together_have_the_steps_of_their_own_runs_and_each_run_its_parts(tmp_path):
    tasks, own = ["root, with a comma/task/a", "root/task/b", "root/task/c"], "train.steps=40 train.rho1=4"
    together = plan_together("5,6", tasks=tasks, tokenizer="v", subset="all", preset="tiny", overrides=own)
    runs = [PlannedRun.parse(text) for text in together]
    assert [(run.arm, run.seed, run.stages, run.tasks(), run.subset) for run in runs] == [
        ("multi-task", seed, "1", tasks, "all") for seed in (5, 6)
    ]
    alone, shared = (resolve("tiny", overrides.split()).train for overrides in (own, runs[0].overrides))
    assert (shared.steps, shared.warmup_steps) == (3 * alone.steps, 3 * alone.warmup_steps)
    assert shared.model_copy(update={"steps": 40, "warmup_steps": alone.warmup_steps}) == alone

    made = [make("checkpoint", tmp_path, lambda draft, seed=seed: draft.details.update(seed=seed), {"seed": seed})
            for seed in (6, 5)]  # fmt: skip  # in another order
    apart = [PlannedRun.parse(text) for text in plan_apart(together, made, subsets=["a", "b", "c"], overrides=own)]
    assert [run for run in apart if run.stages == "12"] == [
        PlannedRun("bm25", seed, task, "v", subset, "tiny", own)
        for seed in (5, 6)
        for task, subset in zip(tasks, ["a", "b", "c"], strict=True)
    ]
    assert [run for run in apart if run.stages == "2"] == [
        PlannedRun("multi-task", seed, task, "v", "all", "tiny", own, "2", made[6 - seed])
        for seed in (5, 6)
        for task in tasks
    ]
