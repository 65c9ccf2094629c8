"""The authors' way, as the benchmarks have it, trains our model: on equal inputs its losses and gradients are ours."""

import dataclasses

import numpy as np
import pytest
import torch

from benchmarks.reference.joint import JointModel
from tests.unit.test_encoder import made, masked_batch
from tlm.training.batches import Batch
from tlm.training.encoder import Encoder, to_device
from tlm.training.losses import classification_loss, external_loss, internal_loss

CPU = torch.device("cpu")
FULL = 24  # longer than any text: their texts are padded to it
RHO2 = 3.0


def padded(batch: Batch) -> dict[str, torch.Tensor]:
    """The batch as the library's collator hands it to the model."""
    rows, width = batch.ids.shape
    ids, labels = np.zeros((rows, FULL), dtype=np.int64), np.full((rows, FULL), -100)
    ids[:, :width] = batch.corrupted
    row, column = np.divmod(batch.positions, width)
    labels[row, column] = batch.targets
    mask = (np.arange(FULL) < batch.lengths[:, None]).astype(np.int64)
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.from_numpy(mask),
        "labels": torch.from_numpy(labels),
    }


def both(architecture: str) -> tuple[Encoder, JointModel, Batch]:
    ours = made(architecture)
    theirs = JointModel(ours.body.config, RHO2)
    theirs.take(ours)
    return ours, theirs, masked_batch()


def assert_same_gradients(ours: Encoder, theirs: JointModel) -> None:
    library = dict(theirs.classifier.named_parameters())
    for name, parameter in ours.body.named_parameters():
        mine, other = parameter.grad, library[name].grad
        mine = torch.zeros_like(parameter) if mine is None else mine
        other = torch.zeros_like(parameter) if other is None else other
        torch.testing.assert_close(mine, other, atol=2e-6, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_external_loss_is_ours(architecture):
    ours, theirs, batch = both(architecture)
    loss = external_loss(ours, to_device(batch, CPU)).total
    other = theirs(**padded(batch))["loss"]
    assert loss.item() == pytest.approx(other.item(), abs=2e-6)
    loss.backward()
    other.backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_joint_loss_is_ours(architecture, normalised):
    ours, theirs, batch = both(architecture)
    theirs.normalised = normalised
    loss = internal_loss(ours, to_device(batch, CPU), RHO2, normalised, mask_internal=True)
    other = theirs(**padded(batch), classes=torch.from_numpy(batch.labels))
    assert loss.total.item() == pytest.approx(other["loss"].item(), abs=5e-6)
    assert loss.mlm.item() == pytest.approx(other["mlm"].item(), abs=2e-6)
    assert loss.ce.item() == pytest.approx(other["ce"].item(), abs=2e-6)
    loss.total.backward()
    other["loss"].backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_loss_of_stage_2_is_ours(architecture):
    ours, theirs, batch = both(architecture)
    clean = padded(dataclasses.replace(batch, corrupted=batch.ids))
    del clean["labels"]
    loss = classification_loss(ours, to_device(batch, CPU)).total
    other = theirs(**clean, classes=torch.from_numpy(batch.labels))["loss"]
    assert loss.item() == pytest.approx(other.item(), abs=2e-6)
    loss.backward()
    other.backward()
    assert_same_gradients(ours, theirs)


def test_another_input_is_told_apart():
    ours, theirs, batch = both("modernbert")
    other = dataclasses.replace(batch, corrupted=np.roll(batch.corrupted, 1, axis=1))
    assert external_loss(ours, to_device(batch, CPU)).total.item() != pytest.approx(
        theirs(**padded(other))["loss"].item(), abs=1e-4
    )
