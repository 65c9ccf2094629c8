"""What a step does only on a GPU, done on the CPU: no loss changes by more than rounding, and no key."""

import threading
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.toys_training import both_stages
from tests.unit.training.test_encoder import ARCHITECTURES, CPU, VOCABULARY, evenly_masked_batch, made, masked_batch
from tlm.training.device import autocast, resolve_device, to_device
from tlm.training.input.batches import split
from tlm.training.loop import _batches
from tlm.training.model.encoder import GPU, OF_KIND, PLAIN, Encoder, Tuning, tf32, tuning
from tlm.training.model.losses import internal_loss

HERE = replace(GPU, pinned=False)  # what a CPU can do of it


def gradients(model: Encoder, batch, habits: Tuning) -> tuple[float, dict[str, torch.Tensor]]:
    with patch.dict(OF_KIND, cpu=habits):
        loss = internal_loss(model, to_device(batch, CPU), 2.0, True, True).total
    model.zero_grad()
    loss.backward()
    return loss.item(), {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@ARCHITECTURES
@pytest.mark.parametrize("pair", [False, True])
def test_losses_and_gradients_are_those_of_a_cpu(architecture, pair):
    model, batch = (
        made(architecture, None if pair else ["bad", "fair", "good"], "model.token_types=2"),
        masked_batch(pair),
    )
    if pair:
        batch = replace(batch, labels=np.linspace(-1, 1, len(batch.lengths), dtype=np.float32))
    (loss, expected), (tuned_loss, found) = (gradients(model, batch, habits) for habits in (PLAIN, HERE))
    assert tuned_loss == pytest.approx(loss, rel=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_padded_texts_are_padded_further_and_nothing_else_moves():
    batch = replace(masked_batch(pair=True), most=48)
    width = batch.ids.shape[1]
    wide = batch.widened(8)
    assert width % 8, "the batch would prove nothing"
    assert wide.ids.shape[1] == -(-width // 8) * 8
    assert (wide.ids[:, :width] == batch.ids).all()
    assert (wide.ids[:, width:] == 0).all()  # the padding of these texts
    assert (wide.corrupted.ravel()[wide.positions] == batch.corrupted.ravel()[batch.positions]).all()
    assert (wide.ids.ravel()[wide.positions] == batch.targets).all()
    assert (wide.types.sum(axis=1) == batch.types.sum(axis=1)).all()
    assert [part.widened(8).ids.shape[1] for part in split(batch, 3)] == [wide.ids.shape[1]] * 3


def test_no_batch_is_wider_than_the_model_or_padded_for_nothing():
    batch = masked_batch()
    width = batch.ids.shape[1]
    narrow = replace(batch, most=width)
    assert batch.widened(1) is batch
    assert narrow.widened(64) is narrow
    assert replace(batch, most=width + 1).widened(64).ids.shape[1] == width + 1
    even = replace(evenly_masked_batch(), most=48)
    assert even.widened(64) is even  # without padding attention needs no mask


def test_logits_are_padded_and_no_parameter_is():
    model, inputs = made("bert"), to_device(masked_batch(), CPU)
    expected, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
    with patch.dict(OF_KIND, cpu=Tuning(vocabulary_multiple=64)):
        logits, _ = model(inputs, inputs.corrupted, tokens=True, classes=False)
    assert logits.shape == (len(inputs.positions), 128)
    torch.testing.assert_close(logits[:, :VOCABULARY], expected)
    assert logits[:, VOCABULARY:].isneginf().all()
    assert len(model.mlm.bias) == len(model.body.embedding()) == VOCABULARY


def test_batches_made_ahead_are_the_same_and_made_by_another_thread():
    made_by: dict[int, str] = {}

    def make(step: int) -> int:
        made_by[step] = threading.current_thread().name
        return 10 * step

    own = threading.current_thread().name
    with patch.dict(OF_KIND, cpu=HERE):
        assert list(_batches(make, range(2, 5), CPU)) == [20, 30, 40]
    assert own not in made_by.values()
    assert list(_batches(make, range(2, 5), CPU)) == [20, 30, 40]
    assert [*made_by.items()] == [(step, own) for step in range(2, 5)]


def test_an_error_in_a_batch_made_ahead_arrives():
    def make(step: int) -> int:
        return 1 // (3 - step)

    with patch.dict(OF_KIND, cpu=HERE):
        made_ahead = _batches(make, range(2, 5), CPU)
        assert next(made_ahead) == 1
        with pytest.raises(ZeroDivisionError):
            next(made_ahead)


def test_a_training_with_a_gpu_s_habits_ends_like_one_without(tmp_path):
    with patch.dict(OF_KIND, cpu=Tuning(ahead=True)):
        ahead = both_stages(tmp_path / "ahead", save_steps=0)
    assert ahead == both_stages(tmp_path / "plain", save_steps=0)
    with patch.dict(OF_KIND, cpu=HERE):
        both_stages(tmp_path / "all", save_steps=0)  # rounding differs, so the contents do
    plain, tuned_too = (
        sorted(path.name for path in (tmp_path / one / "checkpoint").iterdir()) for one in ("plain", "all")
    )
    assert plain == tuned_too


def test_pinned_batches_are_the_same(monkeypatch):
    copies = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:  # a machine without a GPU has no page-locked memory
        copies.append(tensor.clone())
        return copies[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    plain = to_device(masked_batch(), CPU)
    assert not copies
    with patch.dict(OF_KIND, cpu=Tuning(pinned=True)):
        pinned = to_device(masked_batch(), CPU)
    assert len(copies) > 4
    for one, other in zip(vars(plain).values(), vars(pinned).values(), strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_gpu_is_tuned_and_has_no_cudnn_attention(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        resolve_device("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        assert resolve_device("cuda:0") == "cuda:0"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert tuning(torch.device("cuda:0")) == GPU
    assert tuning(CPU) == tuning(torch.device("mps")) == PLAIN


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "roberta", "electra", "distilbert"])
def test_attention_is_computed_in_fp32_on_a_cpu(architecture, monkeypatch):
    """In bf16, torch's kernel for CPUs takes several times as long. The rest of the step stays in bf16."""
    formats, attend = set(), F.scaled_dot_product_attention

    def noted(query, key, value, *rest, **more):
        formats.update((query.dtype, key.dtype, value.dtype))
        return attend(query, key, value, *rest, **more)

    monkeypatch.setattr(F, "scaled_dot_product_attention", noted)
    model, batch = made(architecture), masked_batch()
    exact, _ = gradients(model, batch, PLAIN)
    assert formats == {torch.float32}
    with autocast(CPU, "bf16"):
        products = model.body.embedding()[:8] @ model.body.embedding()[:8].T
        rounded, found = gradients(model, batch, PLAIN)
        assert formats == {torch.float32}
        gradients(model, batch, HERE)
    assert formats == {torch.float32, torch.bfloat16}
    assert products.dtype == torch.bfloat16
    assert rounded == pytest.approx(exact, rel=0.02)
    assert all(gradient.dtype == torch.float32 for gradient in found.values())


def test_tf32_is_for_evaluation_alone():
    assert not torch.backends.cuda.matmul.allow_tf32
    with tf32():
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.mkldnn.matmul.fp32_precision not in ("tf32", "bf16")  # the CPU's stay as they are
    assert not torch.backends.cuda.matmul.allow_tf32
