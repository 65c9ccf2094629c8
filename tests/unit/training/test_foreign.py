"""Encoders that are transformers' own modules: the same losses, the same folders, resumed alike."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification

from tests.toys_training import checkpoint, model, passages, rows, task, tokenizer
from tests.unit.training.test_encoder import LABELS, SPECIAL, VOCABULARY, attention_mask, inputs_of, types
from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Recipe
from tlm.errors import InputError
from tlm.settings.options import Compute
from tlm.settings.presets import resolve
from tlm.training.checkpoint import Snapshots, State
from tlm.training.classification import masked_lm_loss
from tlm.training.input.batches import Batch, FlopCount
from tlm.training.input.texts import Examples, Special, Texts
from tlm.training.input.tokenize import tokenize
from tlm.training.joint import Joint
from tlm.training.loop import Plan, fit
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs
from tlm.training.model.foreign import library_config
from tlm.training.model.losses import classification_loss, external_loss, internal_loss
from tlm.training.stages import train

CPU = torch.device("cpu")
FOREIGN = ("roberta", "distilbert", "electra", "albert", "deberta-v2", "mpnet")
ARCHITECTURES = pytest.mark.parametrize("architecture", FOREIGN)


def made(architecture: str, *overrides: str, seed: int = 3) -> Encoder:
    settings = resolve("tiny", [f"model.architecture={architecture}", *overrides]).model
    return build.build(build.with_task(build.make_config(settings, VOCABULARY, SPECIAL), LABELS, "toy"), seed)


def whole(kind: Any, ours: Encoder) -> Any:
    """The library's own class with our parameters; those of the head for words have their names there."""
    theirs = kind.from_config(library_config(ours.body.config))
    values = {**ours.body.state_dict(), **ours.mlm.state_dict()}
    found = theirs.load_state_dict({name: values[name] for name in theirs.state_dict() if name in values}, strict=False)
    assert {name for name in found.missing_keys if "decoder" not in name and "generator_lm_head" not in name
            and "vocab_projector" not in name} == set()  # fmt: skip
    theirs.tie_weights()
    return theirs.eval()


def read_by(theirs: Any, inputs: Inputs, ids: torch.Tensor) -> torch.Tensor:
    typed = types(inputs) if theirs.config.to_dict().get("type_vocab_size", 1) > 1 else {}
    return theirs(ids, attention_mask=attention_mask(inputs), **typed).logits


@ARCHITECTURES
@pytest.mark.parametrize("equal", [False, True], ids=["padded", "unpadded"])
def test_the_losses_are_those_of_the_library_s_classes(architecture, equal):
    ours, inputs = made(architecture), inputs_of(equal=equal, pair=True)
    words, classes = whole(AutoModelForMaskedLM, ours), whole(AutoModelForSequenceClassification, ours)
    mlm = F.cross_entropy(read_by(words, inputs, inputs.corrupted).flatten(0, 1)[inputs.positions], inputs.targets)
    ce = F.cross_entropy(read_by(classes, inputs, inputs.corrupted), inputs.labels)
    both = internal_loss(ours, inputs, 20.0, normalised=True, mask_internal=True)
    assert external_loss(ours, inputs).total.item() == pytest.approx(mlm.item(), abs=1e-5)
    assert both.total.item() == pytest.approx(((20 * mlm + ce) / 21).item(), abs=1e-5)
    clean = F.cross_entropy(read_by(classes, inputs, inputs.ids), inputs.labels)
    assert classification_loss(ours, inputs).total.item() == pytest.approx(clean.item(), abs=1e-5)


@pytest.mark.parametrize("architecture", [*FOREIGN, "deberta"])
def test_losses_in_bf16_are_those_of_fp32_but_for_rounding(architecture):
    """The first DeBERTa fills masked scores with fp32's lowest number, which bf16 cannot hold."""
    ours, inputs = made(architecture), inputs_of(pair=True)
    exact = internal_loss(ours, inputs, 20.0, normalised=True, mask_internal=True).total
    with torch.autocast("cpu", torch.bfloat16):
        rounded = internal_loss(ours, inputs, 20.0, normalised=True, mask_internal=True).total
    rounded.backward()
    assert rounded.item() == pytest.approx(exact.item(), rel=0.02)


@ARCHITECTURES
def test_the_embeddings_learn_from_both_sides(architecture):
    """The matrix is shared: tokens that are only predicted, and never read, have a gradient too."""
    ours, inputs = made(architecture), inputs_of()
    external_loss(ours, inputs).total.backward()
    unread = sorted(set(range(5, VOCABULARY)) - set(inputs.corrupted.flatten().tolist()))
    assert len(unread) > 0
    assert ours.body.embedding().grad[unread].abs().sum(1).min() > 0
    named = dict(ours.named_parameters())
    assert len({id(value) for value in named.values()}) == len(named) == len(ours.state_dict())


@ARCHITECTURES
def test_weights_follow_from_the_seed(architecture):
    one, same, other = made(architecture), made(architecture), made(architecture, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.body.embedding(), other.body.embedding())
    assert {name for name, value in one.body.config.items() if "dropout" in name and value} == set()
    assert {value for name, value in made(architecture, "model.dropout=0.3").body.config.items()
            if "dropout" in name} == {0.3}  # fmt: skip


@pytest.mark.parametrize("architecture", ["roberta", "distilbert"])
def test_both_stages_train_and_the_folder_is_the_library_s(tmp_path, architecture):
    examples = task(tmp_path, rows(pair=True))
    change = (f"model.architecture={architecture}", "train.lr=3e-3", "finetune.epochs=12")
    start = checkpoint(tmp_path, examples, *change)
    end = model(tmp_path, start, examples, *change)
    ce = pq.read_table(end.path("curve.parquet"))["ce"].to_numpy()
    assert ce[-6:].mean() < ce[:6].mean() - 0.02
    fresh = checkpoint(tmp_path, examples, *change, "train.steps=3", "train.lr=1e-9")
    assert masked_lm_loss(start, Artifact.open(examples), "test", "cpu") < masked_lm_loss(
        fresh, Artifact.open(examples), "test", "cpu"
    )
    for one in (start, end):
        config = AutoConfig.from_pretrained(one.path("model"))
        assert (config.model_type, config.num_labels) == (architecture, 3)
        theirs, found = AutoModelForSequenceClassification.from_pretrained(one.path("model"), output_loading_info=True)
        assert not found["missing_keys"]
        assert not found["unexpected_keys"]
        assert theirs.num_parameters() == one.details["parameters"]


class Dying(Joint):
    """Stage 1 whose process ends at step 5."""

    def batch(self, step: int) -> Batch:
        if step == 5:
            raise KeyboardInterrupt
        return super().batch(step)


@pytest.mark.parametrize("architecture", ["roberta", "electra"])
def test_a_run_that_is_taken_up_again_is_bit_equal(tmp_path, architecture):
    examples, words = task(tmp_path), tokenizer(tmp_path, task(tmp_path))
    preset = resolve("tiny", [f"model.architecture={architecture}", "model.dropout=0.1", "train.steps=8"])
    read = Examples.open(
        Artifact.open(examples), Artifact.open(tokenize(examples, words, root=str(tmp_path))), preset.model.max_length
    )
    tokens = Artifact.open(tokenize(passages(tmp_path, "subset"), words, root=str(tmp_path)))
    vocabulary = Artifact.open(words)
    config = build.with_task(
        build.make_config(preset.model, vocabulary.details["vocab_size"], Special.of(vocabulary)), read.classes, "toy"
    )
    plan = Plan(preset.train, preset.train.steps, 2, preset.model.dropout, seed=0)

    def recipe(name: str) -> Recipe:
        return Recipe("checkpoint", name, 1, {})

    def run(work: type[Joint], name: str) -> Encoder:
        encoder = build.build(config, seed=0)
        state = State.fresh(encoder, preset.train, plan.steps)
        given = work(encoder, read, Texts.open(tokens, preset.train.external_length), preset, 0)
        snapshots = Snapshots(recipe(name), str(tmp_path), Compute(save_steps=2, save_minutes=0))
        try:
            fit(state, given, plan, snapshots, CPU)
        finally:
            snapshots.wait()  # the last one is written while training goes on
        return encoder

    whole_run = run(Joint, "whole")
    with pytest.raises(KeyboardInterrupt):
        run(Dying, "dying")
    assert list((tmp_path / "progress" / recipe("dying").key).glob("*000004"))
    again = run(Joint, "dying")
    for (name, value), other in zip(whole_run.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_its_flops_are_an_estimate_near_those_of_a_bert_of_that_shape():
    batch = inputs_of(equal=True)
    counted = Batch(batch.ids.numpy(), batch.lengths.numpy(), positions=batch.positions.numpy())
    shapes = [resolve("tiny", [f"model.architecture={name}", "model.layers=6"]).model for name in ("bert", "roberta")]
    exact, estimate = (FlopCount(shape, VOCABULARY, 3) for shape in shapes)
    ours, theirs = (cost.of(counted, tokens=True, classes=False) for cost in (exact, estimate))
    assert ours < theirs < 1.2 * ours  # what is left out of the last layer


@pytest.mark.parametrize(
    ("architecture", "sentence"),
    [
        ("robreta", "model.architecture=robreta is no encoder .*; did you mean 'roberta'?"),
        ("gpt2", "model.architecture=gpt2 is no encoder of transformers that predicts words and classes"),
        ("bart", "model.architecture=bart cannot be trained .*it has a decoder too"),
        ("longformer", "model.architecture=longformer cannot be trained"),
    ],
)
def test_what_is_no_such_encoder_is_refused_before_any_work(tmp_path, architecture, sentence):
    examples = task(tmp_path)
    words = tokenizer(tmp_path, examples)
    with pytest.raises(InputError, match=sentence) as error:
        train(examples, tokenizer=words, preset="tiny", overrides=[f"model.architecture={architecture}"],
              root=str(tmp_path))  # fmt: skip
    assert "\n" not in str(error.value)
    assert not (Path(tmp_path) / "tokens").exists()
