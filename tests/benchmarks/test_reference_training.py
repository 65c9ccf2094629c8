"""The authors' way, as the benchmarks have it, trains our model: on equal inputs its losses and gradients are ours."""

import dataclasses
import importlib.util

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn
from transformers import ModernBertConfig, ModernBertForMaskedLM, PreTrainedTokenizerFast

from research.benchmarks.reference.joint import CLASSES, AuthorsLoop, JointModel, Rows, collator
from research.benchmarks.reference.trainer import AtSteps, trainer
from tests.conftest import missing
from tests.toys import ragged
from tests.unit.training.test_encoder import LABELS, SPECIAL, VOCABULARY, made, masked_batch
from tlm.artifacts.produce import Recipe
from tlm.settings.options import Compute
from tlm.settings.presets import resolve
from tlm.training.checkpoint import Snapshots, State
from tlm.training.device import to_device
from tlm.training.input.batches import Batch
from tlm.training.input.texts import Examples, Texts
from tlm.training.joint import Joint
from tlm.training.loop import Plan, fit
from tlm.training.model.encoder import Encoder
from tlm.training.model.losses import classification_loss, external_loss, internal_loss

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


def both(architecture: str, sparing: bool = False) -> tuple[Encoder, JointModel, Batch]:
    ours = made(architecture)
    theirs = JointModel(ours.body.config, RHO2, sparing=sparing)
    theirs.take(ours)
    return ours, theirs, masked_batch()


def assert_same_gradients(ours: Encoder, theirs: JointModel) -> None:
    library = dict(theirs.classifier.named_parameters())
    for name, parameter in ours.body.named_parameters():
        mine, other = parameter.grad, library[name].grad
        mine = torch.zeros_like(parameter) if mine is None else mine
        other = torch.zeros_like(parameter) if other is None else other
        torch.testing.assert_close(mine, other, atol=2e-6, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


SPARING = pytest.mark.parametrize("sparing", [False, True], ids=["authors", "trainer"])


@SPARING
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_external_loss_is_ours(architecture, sparing):
    ours, theirs, batch = both(architecture, sparing)
    loss = external_loss(ours, to_device(batch, CPU)).total
    other = theirs(**padded(batch))["loss"]
    assert loss.item() == pytest.approx(other.item(), abs=2e-6)
    loss.backward()
    other.backward()
    assert_same_gradients(ours, theirs)


@SPARING
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_joint_loss_is_ours(architecture, normalised, sparing):
    ours, theirs, batch = both(architecture, sparing)
    theirs.normalised = normalised
    loss = internal_loss(ours, to_device(batch, CPU), RHO2, normalised, mask_internal=True)
    other = theirs(**padded(batch), classes=torch.from_numpy(batch.labels))
    assert loss.total.item() == pytest.approx(other["loss"].item(), abs=5e-6)
    assert loss.mlm.item() == pytest.approx(other["mlm"].item(), abs=2e-6)
    assert loss.ce.item() == pytest.approx(other["ce"].item(), abs=2e-6)
    loss.total.backward()
    other["loss"].backward()
    assert_same_gradients(ours, theirs)


@SPARING
@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_the_loss_of_stage_2_is_ours(architecture, sparing):
    ours, theirs, batch = both(architecture, sparing)
    clean = padded(dataclasses.replace(batch, corrupted=batch.ids))
    del clean["labels"]
    loss = classification_loss(ours, to_device(batch, CPU)).total
    other = theirs(**clean, classes=torch.from_numpy(batch.labels))["loss"]
    assert loss.item() == pytest.approx(other.item(), abs=2e-6)
    loss.backward()
    other.backward()
    assert_same_gradients(ours, theirs)


def trained_both_ways(tmp_path, architecture: str, head_steps: str) -> tuple[Encoder, JointModel]:
    """Stage 1 on the same batches by our step and by the authors' loop: two internal steps, five external ones each."""
    settings = [
        f"train.head_steps={head_steps}",
        "train.epsilon=1e-6",
        "train.clip=0",
        "train.rho1=5",
        "train.steps=16",
    ]
    preset = resolve("tiny", [*settings, "train.warmup_steps=0", "train.rho2=3", "train.weight_decay=0.1"])
    ours, theirs, _ = both(architecture)
    texts = [Texts(short_texts(count).first, None, FULL, SPECIAL) for count in (40, 20)]
    examples = Examples(texts[1], np.arange(20) % 3, np.array(["train"] * 20, dtype=object), LABELS)
    work = Joint(ours, examples, texts[0], preset, seed=1)
    made_batches = [work.batch(step) for step in range(preset.train.steps)]
    batches: dict[bool, list] = {False: [], True: []}
    for step, batch in enumerate(made_batches):
        classes = {CLASSES: torch.from_numpy(batch.labels)} if work.mixture.is_internal(step) else {}
        batches[work.mixture.is_internal(step)].append(padded(batch) | classes)
    AuthorsLoop(theirs, batches[False], batches[True], preset.train, CPU).run(preset.train.steps)
    plan = Plan(preset.train, preset.train.steps, preset.train.warmup_steps, 0.0, seed=1)
    snapshots = Snapshots(Recipe("checkpoint", "toy", 1, {}), str(tmp_path), Compute(save_minutes=0.0))
    fit(State.fresh(ours, preset.train, plan.steps), work, plan, snapshots, CPU)
    return ours, theirs


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_stage_1_moves_every_weight_as_the_authors_loop_does(tmp_path, architecture):
    """Their head has gradients of zero in external steps: momentum goes on to move it, and weight decay shrinks it."""
    ours, theirs = trained_both_ways(tmp_path, architecture, "all")
    library = theirs.classifier.state_dict()
    for name, value in ours.body.state_dict().items():
        torch.testing.assert_close(value, library[name], atol=2e-4, rtol=1e-3, msg=lambda text, name=name: name + text)
    still, _ = trained_both_ways(tmp_path, architecture, "internal")
    heads = (list(model.body.classification_head().parameters()) for model in (ours, still))
    for mine, other in zip(*heads, strict=True):
        assert (mine - other).abs().max() > 1e-3, "this test could not tell the two ways apart"


def test_another_input_is_told_apart():
    ours, theirs, batch = both("modernbert")
    other = dataclasses.replace(batch, corrupted=np.roll(batch.corrupted, 1, axis=1))
    assert external_loss(ours, to_device(batch, CPU)).total.item() != pytest.approx(
        theirs(**padded(other))["loss"].item(), abs=1e-4
    )


def test_the_trainer_uses_the_library_s_sparse_prediction():
    """ModernBERT's `sparse_prediction`: the same loss to the last bit, and logits only where a token is predicted."""
    ours, theirs, batch = both("modernbert", sparing=True)
    library = ModernBertForMaskedLM(ModernBertConfig.from_dict({**ours.body.config, "sparse_prediction": True}))
    library.load_state_dict(theirs.tokens.state_dict())
    rows: list[int] = []
    theirs.tokens.decoder.register_forward_hook(lambda module, inputs, logits: rows.append(logits.shape[:-1].numel()))
    given = padded(batch)
    assert theirs(**given)["loss"].item() == library(**given).loss.item()
    theirs(**given, classes=torch.from_numpy(batch.labels))
    assert rows == [len(batch.positions)] * 2


def test_the_authors_way_computes_all_logits():
    _, theirs, batch = both("modernbert")
    rows: list[int] = []
    theirs.tokens.decoder.register_forward_hook(lambda module, inputs, logits: rows.append(logits.shape[:-1].numel()))
    theirs(**padded(batch))
    assert rows == [len(batch.ids) * FULL]


class Seen:
    """What a model was given: width of each batch and how much of it is text."""

    def __init__(self, model: nn.Module) -> None:
        self.widths: list[int] = []
        self.filled: list[float] = []
        model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, model: nn.Module, arguments: tuple[object, ...], given: dict[str, torch.Tensor]) -> None:
        self.widths.append(given["attention_mask"].shape[1])
        self.filled.append(given["attention_mask"].float().mean().item())


def short_texts(count: int) -> Texts:
    chance = np.random.default_rng(7)
    words = [chance.integers(5, VOCABULARY, chance.integers(1, 40)).tolist() for _ in range(count)]
    return Texts(ragged(words), None, 48, SPECIAL)


@pytest.mark.parametrize(("clip", "masks"), [(0.0, 0.15), (0.5, 0.0)])
def test_the_trainer_has_its_best_ordinary_settings(tmp_path, clip, masks):
    if importlib.util.find_spec("accelerate") is None:
        missing("the reference trainer: pip install -r research/benchmarks/requirements.txt")
    settings = resolve("tiny", [f"train.clip={clip}"]).train
    count, steps = 1600, 24
    classes = None if masks else np.arange(count) % 3
    rows = Rows(short_texts(count), list(range(count)), classes, padded=False)
    model = JointModel(made("modernbert").body.config, RHO2, sparing=True)
    seen, done = Seen(model), []
    names = {"pad_token": "[PAD]", "mask_token": "[MASK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = {name: place for place, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])}
    vocabulary |= {f"w{place}": place for place in range(5, VOCABULARY)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "[UNK]")), **names)
    watch = AtSteps(1, lambda: done.append(int(model.seen)), lambda: done.append(int(model.seen)))
    made_trainer = trainer(model, rows, collator(tokenizer, masks), settings, 8, steps, watch, tmp_path)
    made_trainer.train()
    assert model.tokens.config._attn_implementation == "sdpa"
    assert made_trainer.optimizer.optimizer.defaults["fused"]
    assert made_trainer.args.max_grad_norm == clip
    assert made_trainer.args.dataloader_num_workers == 0
    assert len(seen.widths) == steps
    assert np.mean(seen.filled) > 0.85, "texts of similar length share a batch; shuffled ones fill about 0.55"
    assert seen.widths != sorted(seen.widths, reverse=True), "a few batches stand for all"
    assert 0 < done[0] < done[1] == sum(round(a * b * 8) for a, b in zip(seen.filled, seen.widths, strict=True))
    assert (CLASSES in rows[0]) == (not masks)
