"""Heads that are cut out of the matrices answer as if their gates were shut."""

import json

import numpy as np
import pytest
import torch

from research.attention.cut import by_share, chosen, cut, importance, layers_of
from research.attention.heads import heads
from tests.toys_training import checkpoint, model, rows, task
from tests.unit.training.test_encoder import inputs_of, made
from tlm.training.classification import class_logits
from tlm.training.input.texts import Examples
from tlm.training.model import build


def answers(encoder):
    inputs = inputs_of()
    return encoder.eval()(inputs, inputs.ids, tokens=False, classes=True)[1].detach()


def test_heads_are_cut_as_if_their_part_of_the_output_were_zero():
    whole, part = made("bert"), made("bert")
    kept = np.ones((3, layers_of(whole)[0].heads), dtype=bool)
    kept[0, 0] = kept[2, 1] = False
    cut(part, kept)
    before = answers(whole)
    for layer, own in zip(layers_of(whole), kept, strict=True):
        output = layer.attention["output"]["dense"]
        output.weight.data *= torch.from_numpy(own).repeat_interleave(output.in_features // len(own))
    assert torch.allclose(answers(whole), answers(part), atol=1e-6)
    assert not torch.allclose(answers(part), before, atol=1e-4)


def test_each_layer_keeps_its_best_head():
    important = np.array([[0.9, 0.8, 0.7], [0.1, 0.3, 0.2]])
    assert chosen(important, 3).tolist() == [[True, True, False], [False, True, False]]
    assert chosen(important, 0).sum() == 2


def test_score_and_speed_are_measured_for_fewer_and_fewer_heads(tmp_path, capsys):
    given = task(tmp_path)
    end = model(tmp_path, checkpoint(tmp_path, given, "model.architecture=bert", "model.layers=2"), given)
    heads(end.uri, steps=8)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counts = [row["heads"] for row in found]
    assert counts == sorted(set(counts), reverse=True)
    assert len(counts) > 1
    assert found[0]["dev"] == pytest.approx(end.details["dev"] if "dev" in end.details else found[0]["dev"])
    assert [len(row["by_chance"]) for row in found] == [0, *[3] * (len(found) - 1)]


def test_importance_does_not_depend_on_the_unit_of_the_targets(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "research.attention.cut.chosen", lambda found, count: seen.append(found) or chosen(found, count)
    )
    for name, shift, factor in (("small", 0.0, 1.0), ("large", 1000.0, 10.0)):
        given = [(*row[:2], shift + factor * row[2], row[3]) for row in rows(regression=True)]
        numbers = task(tmp_path / name, given, "pearson", labels=False)
        start = checkpoint(tmp_path / name, numbers, "model.architecture=bert", "model.layers=2")
        next(by_share(model(tmp_path / name, start, numbers).uri, 2))
    small, large = seen
    assert np.allclose(small, large, atol=1e-3)


def test_importance_is_the_size_of_the_gates_derivatives(tmp_path):
    """Of a gate that is a factor of the head's columns, by differences, on single examples."""
    given = task(tmp_path)
    end = model(tmp_path, checkpoint(tmp_path, given, "model.architecture=bert"), given)
    encoder = build.load(end.path("model"))
    examples = Examples.open(end.input("task"), end.input("task_tokens"), 48)
    found = importance(encoder, examples)
    rows, step = examples.rows("train"), 1e-2

    def losses() -> torch.Tensor:
        logits = torch.from_numpy(class_logits(encoder, examples.texts, rows, torch.device("cpu")))
        return torch.nn.functional.cross_entropy(logits, torch.from_numpy(examples.labels[rows]), reduction="none")

    expected = np.zeros_like(found)
    for index, layer in enumerate(layers_of(encoder)):
        weight = layer.attention["output"]["dense"].weight.data
        columns = weight.view(len(weight), layer.heads, -1)
        for head in range(layer.heads):
            own, both = columns[:, head].clone(), []
            for factor in (1 + step, 1 - step):
                columns[:, head] = factor * own
                both.append(losses())
            columns[:, head] = own
            expected[index, head] = ((both[0] - both[1]) / (2 * step)).abs().sum()
    assert np.allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=0.02)
