"""Both stages as steps: what they write, which arm they are, what is kept, what is refused."""

import json
import math
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import load_file
from scipy.special import softmax
from sklearn import metrics

from tests.toys_training import SMALL, STEPS, checkpoint, model, passages, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Recipe
from tlm.data.tasks.metrics import dev_score, score
from tlm.errors import InputError
from tlm.settings.options import Compute
from tlm.settings.presets import resolve
from tlm.settings.sections import Finetune
from tlm.shallow.temperature import fitted_temperature
from tlm.training import classification
from tlm.training.checkpoint import State
from tlm.training.classification import Classification, begin, class_logits, masked_lm_loss
from tlm.training.device import autocast, memory_advice, resolve_device, resolve_precision
from tlm.training.input import batches
from tlm.training.input.texts import Examples
from tlm.training.joint import Joint
from tlm.training.loop import Plan
from tlm.training.model import build
from tlm.training.stages import train


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def examples(root):
    return task(root)


@pytest.fixture(scope="module")
def start(root, examples):
    return checkpoint(root, examples)


@pytest.fixture(scope="module")
def end(root, examples, start):
    return model(root, start, examples, "finetune.epochs=6", "finetune.evaluations=4")


def curve(artifact: Artifact) -> dict[str, list]:
    return pq.read_table(artifact.path("curve.parquet")).to_pydict()


# ---- stage 1


def test_the_curve_tells_each_step(start):
    found = curve(start)
    assert found["step"] == list(range(STEPS))
    assert found["kind"] == ["internal" if step % 3 == 2 else "external" for step in range(STEPS)]
    assert all((ce is None) == (kind == "external") for ce, kind in zip(found["ce"], found["kind"], strict=True))
    assert all(math.isfinite(mlm) for mlm in found["mlm"])
    assert found["lr"][:3] == pytest.approx([0.001, 0.002, 0.003])
    assert found["lr"] == sorted(found["lr"][:2]) + sorted(found["lr"][2:], reverse=True)


def test_the_cost_adds_up(start):
    cost, found = start.details["cost"], curve(start)
    assert (cost["steps"], cost["external_steps"], cost["internal_steps"]) == (STEPS, 8, 4)
    assert (cost["tokens"], cost["flops"]) == (sum(found["tokens"]), sum(found["flops"]))
    assert cost["padded_tokens"] == STEPS * 8 * 48
    assert cost["paper_flops"] == 6 * start.details["parameters"] * cost["padded_tokens"]
    stored = load_file(start.path("model") / "model.safetensors")
    assert start.details["parameters"] == sum(value.size for value in stored.values())
    assert {"seconds", "threads", "device", "precision", "torch", "peak_memory_bytes"} <= start.run().keys()


def test_arms_are_named_by_their_subset_and_take_as_many_steps(root, examples, start):
    alone = checkpoint(root, examples, alone=True)
    assert (start.details["arm"], alone.details["arm"]) == ("bm25", "task-only")
    assert alone.details["cost"]["internal_steps"] == alone.details["cost"]["steps"] == STEPS
    only_external = checkpoint(root, examples, "train.rho1=inf")
    assert only_external.details["cost"]["external_steps"] == STEPS
    assert set(curve(only_external)["ce"]) == {None}


def test_accumulation_changes_nothing_but_the_last_bits(root, examples, start):
    parts = checkpoint(root, examples, "train.accumulation=3")
    assert curve(parts)["mlm"] == pytest.approx(curve(start)["mlm"], abs=1e-4)
    assert curve(parts)["mlm"] != curve(start)["mlm"]


def test_the_seed_draws_the_masks(start):
    inputs = {name: start.input(name) for name in start.manifest.inputs}
    for seed in (0, 1):
        work = Joint.of(inputs, resolve("tiny", SMALL), seed, torch.device("cpu"))
        for step, plain in ((0, work.external.batch(0)), (2, work.internal(0))):
            expected = work.masking(plain, batches.generator(seed, batches.MASK, step))
            assert np.array_equal(work.batch(step).corrupted, expected.corrupted)


def test_each_step_has_a_dropout_of_its_own_by_the_seed(root, examples):
    checkpoint(root, examples, "model.dropout=0.1", seed=5)
    assert torch.initial_seed() == batches.number(5, batches.DROPOUT, STEPS - 1)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("linear", lambda done: 1 - done),
        ("cosine", lambda d: (1 + math.cos(math.pi * d)) / 2),
        ("constant", lambda _: 1),
    ],
)
def test_the_rate_falls_as_the_schedule_says(name, share):
    plan = Plan(resolve("tiny", [f"train.schedule={name}", "train.lr=0.5"]).train, 12, 2, 0.0, seed=0)
    assert [plan.lr(step) for step in range(2, 12)] == pytest.approx([share(done / 10) / 2 for done in range(10)])


def test_gradients_are_clipped(root, examples, start):
    """To so little here that the optimizer's epsilon outweighs them, and nothing is learned."""
    still = curve(checkpoint(root, examples, "train.clip=1e-12"))["mlm"]
    assert still[-1] > curve(start)["mlm"][-1] + 0.3


def test_labels_are_part_of_what_names_a_checkpoint(root, start):
    changed = [(text, pair, {"bio": "law", "law": "bio"}.get(gold, gold), split) for text, pair, gold, split in rows()]
    other = checkpoint(root, task(root, changed))
    assert other.input("task_tokens").content == start.input("task_tokens").content
    assert other.uri != start.uri


def test_training_lowers_the_held_out_loss(root, examples, start):
    loss = masked_lm_loss(start, Artifact.open(examples), "test", "cpu")
    assert loss == masked_lm_loss(start, Artifact.open(examples), "test", "cpu")
    untrained = checkpoint(root, examples, "train.lr=1e-9")
    vocabulary = untrained.input("task_tokens").details["vocab_size"]
    assert masked_lm_loss(untrained, Artifact.open(examples), "test", "cpu") == pytest.approx(
        math.log(vocabulary), abs=0.1
    )
    assert loss < math.log(vocabulary) - 0.2


# ---- stage 2


def test_the_weights_that_are_best_on_dev_are_kept(root, examples, end):
    found = curve(end)
    scored = {step: dev for step, dev in zip(found["step"], found["dev"], strict=True) if dev is not None}
    assert len(scored) == 4
    assert max(scored) == len(found["step"]) - 1
    best = max(scored.values())
    assert end.details["best_dev"] == best
    assert end.details["best_step"] == min(step for step, dev in scored.items() if dev == best) + 1
    read = Examples.open(Artifact.open(examples), end.input("task_tokens"), 48)
    dev = read.rows("dev")
    logits = class_logits(build.load(end.path("model")), read.texts, dev, torch.device("cpu"))
    assert metrics.f1_score(read.labels[dev], logits.argmax(1), average="macro") == pytest.approx(best)
    assert best > 0.6  # words tell the class


def test_the_rate_of_stage_2_rises_for_its_share_of_the_steps(root, examples, start):
    rates = curve(model(root, start, examples, "finetune.epochs=2", "finetune.warmup_share=0.3"))["lr"]
    assert rates.index(max(rates)) == round(0.3 * len(rates)) == 4


@pytest.mark.parametrize("training", [True, False])
def test_dev_is_scored_without_dropout_and_the_model_keeps_its_mode(examples, end, training):
    read = Examples.open(Artifact.open(examples), end.input("task_tokens"), 48)
    net, plain = (
        build.build(build.with_dropout(json.loads((end.path("model") / "config.json").read_text()), at), 0)
        for at in (0.5, 0)
    )
    net.train(training)
    found, expected = (class_logits(one, read.texts, read.rows("dev"), torch.device("cpu")) for one in (net, plain))
    assert np.array_equal(found, expected)
    assert net.training == net.body.training == training


def begun(examples: str, start: Artifact, epochs: float) -> Classification:
    inputs = {"checkpoint": start, "task": Artifact.open(examples), "task_tokens": start.input("task_tokens")}
    recipe = Recipe("model", "finetune", 0, {"arm": "", "seed": 0}, inputs)
    return Classification(*begin(recipe, Finetune(batch=8, lr=1e-3, epochs=epochs, evaluations=4)))


def test_a_small_part_of_an_epoch_is_one_step_and_dev_is_scored_after_a_step(examples, start):
    works = [begun(examples, start, epochs) for epochs in (0.01, 0.5, 2)]
    assert [work.steps for work in works] == [1, 3, 12]
    assert [work.evaluated for work in works] == [{1}, {1, 2, 3}, {3, 6, 9, 12}]


def test_the_best_weights_stay_while_training_goes_on(examples, start):
    work = begun(examples, start, 1)
    state = State.fresh(work.model.body, work.settings, work.steps)
    state.step = work.steps
    work.after(state)
    before = {name: one.clone() for name, one in state.best.weights.items()}
    for one in work.model.body.parameters():
        one.data += 1
    assert all(torch.equal(state.best.weights[name], one) for name, one in before.items())


def test_a_dev_score_that_is_not_a_number_ends_the_training(examples, start):
    work = begun(examples, start, 1)
    work.model.body.classifier.bias.data[0] = math.inf  # of one class only
    state = State.fresh(work.model.body, work.settings, work.steps)
    state.step = work.steps
    with pytest.raises(InputError, match=f"diverged before step {work.steps}; lower finetune.lr"):
        work.after(state)


def test_dropout_of_stage_2_is_its_own(root, examples, start):
    one, other = (model(root, start, examples, "finetune.epochs=1", f"finetune.dropout={at}") for at in (0, 0.3))
    assert curve(one)["ce"] != curve(other)["ce"]


def test_probabilities_have_the_temperature_of_dev(root, examples, start, monkeypatch):
    settings = "finetune.epochs=1", "finetune.lr=0.01"
    ours = model(root, start, examples, *settings)
    read = Examples.open(Artifact.open(examples), ours.input("task_tokens"), 48)
    dev = read.rows("dev")

    def logits(of):
        return class_logits(build.load(of.path("model")), read.texts, dev, torch.device("cpu"))

    after, temperature = logits(ours), ours.details["chosen"]["temperature"]
    shutil.rmtree(ours.uri)
    monkeypatch.setattr(classification, "fitted_temperature", lambda chances, gold: 1.0)
    raw = model(root, start, examples, *settings)
    before = logits(raw)
    assert temperature == fitted_temperature(softmax(before.astype(np.float64), axis=1), read.labels[dev]) != 1
    assert after == pytest.approx(before / temperature, abs=1e-5)
    assert raw.details["chosen"] == {"temperature": 1.0}


def test_the_head_is_fresh_or_the_checkpoint_s(root, examples, start):
    frozen = ("finetune.lr=1e-12", "finetune.epochs=1")
    old = load_file(start.path("model") / "model.safetensors")
    reset = load_file(model(root, start, examples, *frozen).path("model") / "model.safetensors")
    own = model(root, start, examples, *frozen, "finetune.reset_head=false")
    kept = load_file(own.path("model") / "model.safetensors")
    seeded = load_file(model(root, start, examples, *frozen, seed=5).path("model") / "model.safetensors")
    for name, value in old.items():
        shrunk = own.details["chosen"]["temperature"] if name.startswith("classifier.") else 1
        assert np.allclose(kept[name] * shrunk, value, atol=1e-6)
        if not name.startswith(("classifier.", "head.")):
            assert np.allclose(reset[name], value, atol=1e-6)
    for name in ("classifier.weight", "head.dense.weight"):
        assert not np.allclose(reset[name], old[name], atol=1e-6)
        assert not np.allclose(reset[name], seeded[name], atol=1e-6)


def test_the_seed_is_the_checkpoint_s_unless_given(root, examples, start):
    end = model(root, start, examples)
    assert (end.details["seed"], end.details["arm"]) == (0, "bm25")
    assert model(root, start, examples, seed=4).details["seed"] == 4


def test_the_model_card_says_what_the_model_is(end):
    card = (end.path("model") / "README.md").read_text(encoding="utf-8")
    task = "# toy", "3 classes: `bio`, `law`, `sea`", "48 training examples"
    for fact in ("library_name: transformers", *task, "by BM25"):
        assert fact in card
    assert f"macro_f1 on dev: {end.details['best_dev']:.4f}, after step {end.details['best_step']}" in card
    assert "{" not in card, "nothing is left to fill in, and the example is one text"


def test_a_number_can_be_learned(root):
    targets = task(root, rows(regression=True), "pearson", labels=False)
    end = model(root, checkpoint(root, targets, alone=True), targets, "finetune.epochs=6")
    config = json.loads((end.path("model") / "config.json").read_text())
    assert config["problem_type"] == "regression"
    assert config == build.for_older(config)  # transformers 4.48 to 5.0 read it, too
    assert len(config["id2label"]) == 1
    assert end.details["best_dev"] > 0.5


def test_pairs_can_be_learned(root):
    pairs = task(root, rows(pair=True))
    end = model(root, checkpoint(root, pairs, alone=True), pairs, "finetune.epochs=6")
    assert end.details["best_dev"] > 0.6
    assert '"text_pair": "…"' in (end.path("model") / "README.md").read_text(encoding="utf-8")


def test_dev_scores_are_of_the_largest_logit_or_of_the_first_column():
    chance = np.random.default_rng(0)
    gold, logits = chance.integers(0, 5, 300), chance.normal(size=(300, 5)).round(1)
    assert dev_score("macro_f1", gold, logits) == score("macro_f1", gold, logits.argmax(1))
    assert dev_score("pearson", gold, logits) == score("pearson", gold, logits[:, 0])


# ---- the device


def test_threads_are_what_is_asked_for(root, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("TLM_THREADS", "3")
    assert resolve_device("cpu") == "cpu"
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)
    monkeypatch.setenv("TLM_THREADS", "many")
    with pytest.raises(InputError, match="TLM_THREADS is 'many'; expected the number of CPU threads"):
        resolve_device("auto")


def test_running_out_of_memory_ends_with_advice():
    with pytest.raises(InputError, match="too small for a step; take less"), memory_advice("take less"):
        torch.empty(1 << 52)
    with pytest.raises(InputError, match="too small for a step; take less"), memory_advice("take less"):
        raise RuntimeError("could not create a primitive")  # of oneDNN, where the address space is limited
    with pytest.raises(RuntimeError, match="shapes"), memory_advice("take less"):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_bf16_differs_in_the_last_digits_only(root, examples, start):
    half = checkpoint(root, examples, "train.precision=bf16")
    assert curve(half)["mlm"] == pytest.approx(curve(start)["mlm"], abs=0.02)
    assert curve(half)["mlm"] != curve(start)["mlm"]
    assert half.run()["precision"] == "bf16"


@pytest.mark.parametrize("there", [True, False])
def test_auto_is_bf16_where_the_processor_has_it(root, examples, monkeypatch, capsys, there):
    """Only what torch says of the processor is replaced: no machine is both."""
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": there}, raising=False)
    cpu, slow = torch.device("cpu"), "this CPU has no bf16"
    assert resolve_precision(cpu, "auto") == ("bf16" if there else "fp32")
    assert [resolve_precision(cpu, given) for given in ("bf16", "fp32")] == ["bf16", "fp32"]
    for given, warned in (("auto", False), ("fp32", False), ("bf16", not there)):
        with autocast(cpu, given):
            assert torch.is_autocast_enabled("cpu") == (given == "bf16" or (there and given == "auto"))
        assert (slow in capsys.readouterr().err) == warned
    made = checkpoint(root, examples, "train.precision=auto", "train.steps=4", f"train.lr={1e-3 + there * 1e-4}")
    assert made.run()["precision"] == ("bf16" if there else "fp32")
    assert made.manifest.settings["train"]["precision"] == "auto"


# ---- what is refused


def test_what_cannot_be_trained_is_said_before_any_work(root, examples, start):
    words, subset = tokenizer(root, examples), passages(root, "subset")
    common = {"tokenizer": words, "preset": "tiny", "root": str(root)}
    with pytest.raises(InputError, match="trains on external data only; give a subset"):
        train(examples, overrides=["train.rho1=inf"], **common)
    with pytest.raises(InputError, match="seed is -1; expected 0 or more"):
        train(examples, subset=subset, seed=-1, **common)
    with pytest.raises(InputError, match="seed is 18446744073709551616; expected 0 or more, and less than"):
        train(examples, subset=subset, seed=2**64, **common)
    with pytest.raises(InputError, match="is a tokenizer; expected a task"):
        train(words, **common)
    for device in ("gpu", "cpu:"):
        with pytest.raises(InputError, match=f"device '{device}' is unknown; expected auto, cpu"):
            train(examples, subset=subset, compute=Compute(device=device), **common)
    targets = task(root, rows(regression=True), "pearson", labels=False)
    with pytest.raises(InputError, match=r"for other classes than this task's; set finetune.reset_head=true"):
        model(root, start, targets, "finetune.reset_head=false")
