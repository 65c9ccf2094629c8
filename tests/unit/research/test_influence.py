"""`rerank`: influence against gradients by autograd, and what becomes of it."""

import shutil
from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from research.rerank import gradients
from research.rerank.gradients import influences, moved, task_gradient
from research.rerank.rerank import rerank
from tests.searchable import tiny_index
from tests.tiny import write_tiny
from tests.toys_training import SMALL
from tlm.artifacts.artifact import Artifact
from tlm.data.passages import passages as passages_of
from tlm.data.tasks.task import load_task
from tlm.errors import InputError
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.settings.options import Compute
from tlm.training.device import to_device
from tlm.training.input.batches import HELD_OUT, Masking, collate, generator
from tlm.training.input.texts import Examples, Texts
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.model import build
from tlm.training.model.losses import classification_loss, external_loss
from tlm.training.stages import train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Root, BM25's subset, a larger one, and a checkpoint that was trained on the first."""
    root, corpus, task, index = tiny_index(tmp_path_factory.mktemp("influence"))
    few, many = (export(retrieve(index, task, top_k=top_k, root=root), root=root) for top_k in (2, 6))
    tokenizer = build_tokenizer(corpus, task, vocab_size=300, root=root)
    given = {"preset": "tiny", "overrides": SMALL, "compute": Compute("cpu"), "root": root}
    return root, few, many, train(task, tokenizer=tokenizer, subset=few, **given)


@pytest.fixture(scope="module")
def opened(world):
    """The model in double precision, the examples and the passages."""
    root, _, many, checkpoint = world
    made = Artifact.open(checkpoint)
    tokens = tokenize(many, made.input("task_tokens").input("tokenizer").uri, root=root)
    model = build.load(made.path("model"), made.path(build.MLM_HEAD)).double().eval()
    length = build.text_length(model.body.config)
    examples = Examples.open(made.input("task"), made.input("task_tokens"), length)
    return model, examples, Texts.open(Artifact.open(tokens), length)


def test_the_task_s_gradient_is_that_of_the_mean_loss(opened):
    model, examples, _ = opened
    found = task_gradient(model, examples, CPU)
    rows = examples.rows("train")
    model.zero_grad()
    classification_loss(model, to_device(collate(examples.texts, rows, examples.labels), CPU)).total.backward()
    for name, weights in model.body.named_parameters():
        if name in found:
            assert torch.allclose(found[name], weights.grad, atol=1e-6), name
    assert not any(name.startswith(model.body.head_names) for name in found)
    assert any("embeddings" in name for name in found)


def test_influence_is_the_inner_product_of_gradients_by_autograd(opened, monkeypatch):
    """Passage by passage, the loss a mean over masked tokens. The step of real use is larger, for single precision."""
    model, examples, texts = opened
    monkeypatch.setattr(gradients, "DRAWS", 1)
    gradient = task_gradient(model, examples, CPU)
    monkeypatch.setattr(gradients, "by_length", lambda lengths: iter(np.arange(len(lengths))[:, None]))
    larger = influences(model, texts, gradient, CPU, seed=3)
    monkeypatch.setattr(gradients, "STEP", 1e-5)  # below that, rotary positions in single precision show
    found = influences(model, texts, gradient, CPU, seed=3)
    masking = Masking(0.15, model.body.config["vocab_size"], texts.special)
    expected = []
    for row in range(len(texts)):
        batch = masking(collate(texts, np.array([row])), generator(3, HELD_OUT, 0, row))
        model.zero_grad()
        external_loss(model, to_device(batch, CPU)).total.backward()
        weights = dict(model.body.named_parameters())
        products = [(gradient[name] * weights[name].grad).sum() for name in gradient if weights[name].grad is not None]
        expected.append(float(sum(products)))
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6 * max(map(abs, expected)))
    assert larger == pytest.approx(expected, rel=2e-2, abs=1e-3 * max(map(abs, expected)))
    assert spearmanr(larger, expected).statistic > 0.999


def test_a_model_is_as_it_was_afterwards(opened):
    model, examples, _ = opened
    gradient = task_gradient(model, examples, CPU)
    weights = dict(model.body.named_parameters())
    before = {name: weights[name].clone() for name in gradient}
    with torch.no_grad(), moved(weights, gradient, 5.0):
        assert not torch.equal(next(iter(before.values())), weights[next(iter(before))])
    assert all(torch.equal(before[name], weights[name]) for name in gradient)


def test_what_is_chosen_becomes_a_subset_of_the_size_of_bm25s(world):
    root, few, many, checkpoint = world
    hits = rerank(checkpoint, many, same_size_as=few, seed=1, device="cpu", root=root)
    assert rerank(checkpoint, many, same_size_as=few, seed=1, device="cpu", root=root) == hits
    made = Artifact.open(export(hits, root=root))
    assert made.details == {"arm": "rerank", "passages": Artifact.open(few).details["passages"]}
    docs, those = (
        set(chain.from_iterable(batch["doc"].to_pylist() for batch in passages_of(one, ["doc"])))
        for one in (made, Artifact.open(many))
    )
    assert docs < those


def test_what_is_chosen_again_in_another_root_has_the_same_content(world, tmp_path):
    root, few, many, checkpoint = world
    other = shutil.copytree(root, tmp_path / "other")
    found = []
    for place in (root, str(other)):
        one, two, three = (uri.replace(root, place) for uri in (checkpoint, many, few))
        hits = rerank(one, two, same_size_as=three, seed=2, device="cpu", root=place)
        assert hits.startswith(f"{place}/")
        found.append([Artifact.open(made).content for made in (hits, export(hits, root=place))])
    assert found[0] == found[1]


def test_artifacts_of_different_tasks_are_refused(world, tmp_path):
    root, few, many, checkpoint = world
    write_tiny(tmp_path)
    (tmp_path / "task" / "train.jsonl").write_text((tmp_path / "task" / "dev.jsonl").read_text())
    other = load_task(str(tmp_path / "task"), root=root)
    index = Artifact.open(many).input("hits").input("index").uri
    foreign = export(retrieve(index, other, top_k=3, root=root), root=root)
    with pytest.raises(InputError, match="are not of one task and corpus; give those of one run"):
        rerank(checkpoint, foreign, same_size_as=few, device="cpu", root=root)
