"""What is drawn at random: anew in each step, by the seed that was given, and the same again by the same seed."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from kfp import dsl

from components import training
from tests.toys_training import checkpoint, model, rows, task
from tlm.artifacts.artifact import Artifact
from tlm.runs.plan import PlannedRun
from tlm.training.classification import masked_lm_loss
from tlm.training.device import to_device
from tlm.training.input.batches import HELD_OUT, Masking, collate, generator
from tlm.training.input.texts import Examples
from tlm.training.model import build

STILL = ("finetune.lr=1e-12", "finetune.reset_head=false")  # the loss depends on batch and dropout alone
SHORT = ("finetune.steps=6", "finetune.evaluations=1")
NOISY, CALM = "finetune.dropout=0.3", "finetune.dropout=0"


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return task(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def start(examples):
    return checkpoint(Artifact.open(examples).store.root, examples, "train.steps=3")


@pytest.fixture(scope="module")
def alike(examples):
    """A task whose training texts are one text: all batches are equal."""
    first, *_ = found = rows()
    same = [(first[0], None, gold, split) if split == "train" else (text, pair, gold, split)
            for text, pair, gold, split in found if split != "train" or gold == first[2]]  # fmt: skip
    return task(Artifact.open(examples).store.root, same)


def losses(start, examples, *overrides, **settings):
    made = model(start.store.root, start, examples, *SHORT, *overrides, **settings)
    return pq.read_table(made.path("curve.parquet"))["ce"].to_pylist()


def test_dropout_is_another_in_each_step_and_by_each_seed(start, alike):
    assert len(set(losses(start, alike, *STILL, CALM))) == 1  # nothing else tells the steps apart
    noisy = losses(start, alike, *STILL, NOISY)
    assert len(set(noisy)) == len(noisy)
    assert not set(noisy) & set(losses(start, alike, *STILL, NOISY, seed=1))


def test_the_order_of_stage_2_is_another_by_each_seed(start, examples):
    first, second = (losses(start, examples, *STILL, CALM, seed=seed) for seed in (0, 1))
    assert first != pytest.approx(second, abs=1e-4)


def test_equal_seeds_make_equal_models_and_others_make_others(tmp_path, start, examples):
    once, other = (model(start.store.root, start, examples, *SHORT, NOISY, seed=seed) for seed in (3, 4))
    assert (once.details["seed"], other.details["seed"]) == (3, 4)
    weights = [(made.path("model") / "model.safetensors").read_bytes() for made in (once, other)]
    assert weights[0] != weights[1]
    shutil.copytree(start.store.root, tmp_path, ignore=shutil.ignore_patterns("model"), dirs_exist_ok=True)
    there = [uri.replace(start.store.root, str(tmp_path)) for uri in (start.uri, examples)]
    again = model(tmp_path, Artifact.open(there[0]), there[1], *SHORT, NOISY, seed=3)
    assert (again.content, again.uri == once.uri) == (once.content, False)


def test_the_seed_of_a_pipeline_s_run_reaches_both_stages(tmp_path, start, examples):
    """Also stage 2 of a checkpoint that was made by another seed."""
    outputs = dsl.Metrics(), dsl.Model(uri=str(tmp_path / "model"))
    root, tokenizer = start.store.root, start.input("task_tokens").input("tokenizer").uri
    overrides = " ".join(["train.steps=3", "train.rho1=2", "train.warmup_steps=1", *SHORT])
    run = PlannedRun("task-only", 7, examples, tokenizer, "", "tiny", overrides)
    first = training.train.python_func(str(run), "0", root, dsl.Metrics())
    second = training.finetune.python_func(first, str(run), "0", root, *outputs)
    assert [Artifact.open(uri).details["seed"] for uri in (first, second)] == [7, 7]
    alone = str(run._replace(stages="2", start=start.uri))
    made = training.finetune.python_func(start.uri, alone, "0", root, *outputs)
    assert (start.details["seed"], Artifact.open(made).details["seed"]) == (0, 7)


@torch.no_grad()
def test_the_held_out_loss_is_a_mean_over_eight_masks(start, examples):
    held_out, tokens = Artifact.open(examples), start.input("task_tokens")
    whole = build.load(start.path("model"), start.path(build.MLM_HEAD)).eval()
    read = Examples.open(held_out, tokens, build.text_length(whole.body.config))
    special, test = read.texts.special, read.rows("test")
    masking = Masking(0.15, whole.body.config["vocab_size"], special)
    longest_first = test[np.argsort(-read.texts.lengths[test], kind="stable")]
    sums, counts = [], []
    for draw in range(8):
        batch = masking(collate(read.texts, longest_first), generator(0, HELD_OUT, draw, 0))
        inputs = to_device(batch, torch.device("cpu"))
        logits, _ = whole(inputs, inputs.corrupted, tokens=True, classes=False)
        sums.append(float(F.cross_entropy(logits, inputs.targets, reduction="sum")))
        counts.append(batch.of_masked)
    assert len(set(sums)) == 8
    assert masked_lm_loss(start, held_out, "test", "cpu") == pytest.approx(sum(sums) / sum(counts), rel=1e-6)
    assert sums[0] / counts[0] != pytest.approx(sum(sums) / sum(counts), rel=1e-3)
