"""The model: what is left out of the step changes nothing; what is exported is read by transformers alike."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    PreTrainedConfig,
    pipeline,
)

from tests.toys import ragged
from tests.toys_training import rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.settings.presets import paper_flops, resolve
from tlm.training.checkpoint import AdamW
from tlm.training.device import to_device
from tlm.training.input.batches import MASK, FlopCount, Masking, collate, generator, split
from tlm.training.input.texts import Special, Texts
from tlm.training.model import build
from tlm.training.model.encoder import Encoder, Inputs
from tlm.training.model.losses import classification_loss, external_loss, internal_loss

CPU, VOCABULARY, LABELS = torch.device("cpu"), 90, ["bad", "fair", "good"]
SPECIAL = Special(0, 1, 2, 3, 4)
ARCHITECTURES = pytest.mark.parametrize("architecture", ["bert", "modernbert"])


def made(architecture: str, labels: list[str] | None = LABELS, *overrides: str) -> Encoder:
    settings = resolve("tiny", [f"model.architecture={architecture}", "model.layers=3", *overrides]).model
    return build.build(build.with_task(build.make_config(settings, VOCABULARY, SPECIAL), labels, "toy"), seed=3)


def masked_batch(pair: bool = False, equal: bool = False, count: int = 7):
    chance = np.random.default_rng(5)

    def some() -> list[list[int]]:
        return [chance.integers(5, VOCABULARY, 20 if equal else chance.integers(1, 21)).tolist() for _ in range(count)]

    texts = Texts(ragged(some()), ragged(some()) if pair else None, 48, SPECIAL)
    plain = collate(texts, np.arange(count), np.arange(count) % 3)
    return Masking(0.3, VOCABULARY, SPECIAL)(plain, generator(0, MASK, 0))


def evenly_masked_batch():
    """Texts of one length, of each the same number of tokens to predict."""
    batch = masked_batch(equal=True)
    rows, width = batch.ids.shape
    positions = (np.arange(rows)[:, None] * width + [2, 3, 11]).ravel()
    return replace(batch, positions=positions, targets=batch.ids.ravel()[positions], of_masked=len(positions))


def inputs_of(**kinds: bool) -> Inputs:
    return to_device(masked_batch(**kinds), CPU)


# ---- references: the classes of transformers, their whole forward pass with logits everywhere, on our parameters


def attention_mask(inputs: Inputs) -> Tensor:
    return (torch.arange(inputs.ids.shape[1]) < inputs.lengths[:, None]).long()


def types(inputs: Inputs) -> dict[str, Tensor]:
    return {} if inputs.types is None else {"token_type_ids": inputs.types}


def library_tokens(model: Encoder, inputs: Inputs) -> Tensor:
    """The loss of a ``…ForMaskedLM``, with -100 where nothing is predicted."""
    kind = model.body.config["model_type"]
    names = {"bert": "cls.predictions.transform.", "modernbert": "head."}
    values = {
        name: value for name, value in model.body.named_parameters() if not name.startswith(model.body.head_names)
    }
    values |= {names[kind] + name: value for name, value in model.mlm.transform.named_parameters()}
    values["cls.predictions.decoder.bias" if kind == "bert" else "decoder.bias"] = model.mlm.bias
    whole = {"bert": BertForMaskedLM, "modernbert": ModernBertForMaskedLM}[kind](library_config(model))
    assert whole.state_dict().keys() - values.keys() <= {
        "cls.predictions.bias", "cls.predictions.decoder.weight", "decoder.weight",  # tied to others
    }  # fmt: skip
    labels = torch.full(inputs.ids.shape, -100).flatten()
    labels[inputs.positions] = inputs.targets
    given = {"attention_mask": attention_mask(inputs), "labels": labels.view(inputs.ids.shape), **types(inputs)}
    return functional_call(whole, values, (inputs.corrupted,), given).loss


def library_classes(model: Encoder, inputs: Inputs, ids: Tensor) -> Tensor:
    """Logits of a ``…ForSequenceClassification``."""
    classes = {"bert": BertForSequenceClassification, "modernbert": ModernBertForSequenceClassification}
    whole = classes[model.body.config["model_type"]](library_config(model))
    values = dict(model.body.named_parameters())
    assert whole.state_dict().keys() == values.keys()
    return functional_call(whole, values, (ids,), {"attention_mask": attention_mask(inputs), **types(inputs)}).logits


def library_config(model: Encoder) -> PreTrainedConfig:
    kinds = {"bert": BertConfig, "modernbert": ModernBertConfig}
    return kinds[model.body.config["model_type"]].from_dict(model.body.config)


def gradients(model: Encoder, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def assert_same(model: Encoder, ours: Tensor, theirs: Tensor) -> None:
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)
    mine, other = gradients(model, ours), gradients(model, theirs)
    for name in mine.keys() | other.keys():
        zero = torch.zeros_like(dict(model.named_parameters())[name])
        difference = (mine.get(name, zero) - other.get(name, zero)).abs().max().item()
        assert difference < 1e-6, f"{name}: {difference}"


# ---- exactness


@ARCHITECTURES
@pytest.mark.parametrize("equal", [False, True], ids=["padded", "unpadded"])
def test_the_external_loss_is_the_library_s(architecture, equal):
    model, inputs = made(architecture), inputs_of(equal=equal)
    assert (inputs.mask is None) == equal
    assert_same(model, external_loss(model, inputs).total, library_tokens(model, inputs))


@ARCHITECTURES
@pytest.mark.parametrize("normalised", [True, False], ids=["released code", "paper"])
@pytest.mark.parametrize("mask_internal", [True, False])
def test_the_joint_loss_is_the_library_s(architecture, normalised, mask_internal):
    model, inputs, rho2 = made(architecture), inputs_of(), 20.0
    ours = internal_loss(model, inputs, rho2, normalised, mask_internal)
    logits = library_classes(model, inputs, inputs.corrupted if mask_internal else inputs.ids)
    ce = F.cross_entropy(logits, inputs.labels)
    mlm = library_tokens(model, inputs)
    theirs = (rho2 * mlm + ce) / (rho2 + 1) if normalised else rho2 * mlm + ce
    assert ours.mlm.item() == pytest.approx(mlm.item(), abs=1e-6)
    assert ours.ce.item() == pytest.approx(ce.item(), abs=1e-6)
    scale = 1 if normalised else rho2 + 1
    assert_same(model, ours.total / scale, theirs / scale)


def test_the_second_text_of_a_pair_has_its_type():
    model, inputs = made("bert"), inputs_of(pair=True)
    theirs = F.cross_entropy(library_classes(model, inputs, inputs.ids), inputs.labels)
    assert_same(model, classification_loss(model, inputs).total, theirs)
    _, typed = model(inputs, inputs.ids, tokens=False, classes=True)
    _, plain = model(replace(inputs, types=None), inputs.ids, tokens=False, classes=True)
    assert not torch.allclose(plain, typed, atol=1e-4)


@ARCHITECTURES
def test_a_batch_in_parts_has_the_gradient_of_the_whole(architecture):
    model, batch = made(architecture), masked_batch()
    whole = internal_loss(model, to_device(batch, CPU), 2.0, True, True)
    parts = [internal_loss(model, to_device(part, CPU), 2.0, True, True) for part in split(batch, 3)]
    assert len(parts) == 3
    assert_same(model, sum(part.total for part in parts), whole.total)
    assert sum(part.ce for part in parts).item() == pytest.approx(whole.ce.item(), abs=1e-6)


TARGETS = np.array([0.5, 1, 2, 0, 1, 2, 3], dtype=np.float32)


def test_a_batch_of_targets_in_parts_has_the_gradient_of_the_whole():
    """In parts of unequal size, so that a mean of the parts' means would be another number."""
    model, batch = made("modernbert", None), replace(masked_batch(), labels=TARGETS)
    whole = classification_loss(model, to_device(batch, CPU))
    parts = [classification_loss(model, to_device(part, CPU)) for part in split(batch, 3)]
    assert [len(part.lengths) for part in split(batch, 3)] == [3, 2, 2]
    assert_same(model, sum(part.total for part in parts) / 100, whole.total / 100)  # gradients of squares are large
    assert sum(part.ce for part in parts).item() == pytest.approx(whole.ce.item(), abs=1e-6)


def test_a_target_is_learned_by_squared_error():
    model = made("modernbert", None)
    batch = masked_batch()
    inputs = to_device(replace(batch, labels=TARGETS), CPU)
    loss = classification_loss(model, inputs)
    values = library_classes(model, inputs, inputs.ids)[:, 0]
    assert loss.total.item() == pytest.approx(((values - inputs.labels) ** 2).mean().item(), abs=1e-6)


def test_nothing_to_predict_is_no_loss_and_no_nan():
    model = made("modernbert")
    texts = Texts(ragged([[], []]), None, 48, SPECIAL)
    empty = Masking(0.15, VOCABULARY, SPECIAL)(collate(texts, np.arange(2)), generator(0, MASK, 0))
    loss = external_loss(model, to_device(empty, CPU)).total
    loss.backward()
    assert loss.item() == 0
    assert all(value.grad is None or value.grad.isfinite().all() for value in model.parameters())


# ---- weights and folders


@ARCHITECTURES
def test_weights_follow_from_the_seed_and_leave_the_global_generator_alone(architecture):
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    first, second = made(architecture), made(architecture)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    logits, _ = first(inputs_of(), inputs_of().corrupted, tokens=True, classes=False)
    assert F.cross_entropy(logits, inputs_of().targets).item() == pytest.approx(math.log(VOCABULARY), abs=0.2)


@ARCHITECTURES
@pytest.mark.parametrize("pair", [False, True])
def test_an_exported_folder_gives_our_logits_through_transformers(tmp_path, architecture, pair):
    examples = rows(pair=pair)
    made_task = task(tmp_path, examples)
    words = Artifact.open(tokenizer(tmp_path, made_task))
    settings = resolve("tiny", [f"model.architecture={architecture}"]).model
    config = build.with_task(build.make_config(settings, words.details["vocab_size"], Special.of(words)), LABELS, "toy")
    model = build.build(config, seed=1)
    folder = tmp_path / "model"
    build.save(model, folder, words.path("tokenizer"))

    assert all(path.stat().st_mode & 0o444 == 0o444 for path in folder.iterdir())
    loaded = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    read = AutoTokenizer.from_pretrained(folder)
    assert type(loaded).__name__ == model.body.config["architectures"][0]
    assert [loaded.config.id2label[place] for place in range(3)] == LABELS
    assert read.model_max_length == settings.max_length
    texts = [row[0] * 6 for row in examples[:9]]  # long enough to be cut
    second = [row[1] for row in examples[:9]] if pair else None
    encoded = read(texts, second, truncation=True, padding=True, return_tensors="pt")
    assert encoded["input_ids"].shape[1] == settings.max_length
    theirs = loaded(**encoded).logits

    plain = [read(text, add_special_tokens=False)["input_ids"] for text in texts]
    seconds = ragged(read(second, add_special_tokens=False)["input_ids"]) if second else None
    batch = collate(Texts(ragged(plain), seconds, settings.max_length, Special.of(words)), np.arange(9))
    again = build.load(folder).eval()
    _, ours = again(to_device(batch, CPU), to_device(batch, CPU).ids, tokens=False, classes=True)
    assert (ours - theirs).abs().max() < 1e-5

    classify = pipeline("text-classification", model=str(folder), top_k=None)
    asked = [{"text": a, "text_pair": b} for a, b in zip(texts, second, strict=True)] if second else texts
    for row, found in enumerate(classify(asked, truncation=True)):
        scores = {entry["label"]: entry["score"] for entry in found}
        assert [scores[label] for label in LABELS] == pytest.approx(ours[row].softmax(-1).tolist(), abs=1e-5)


@ARCHITECTURES
def test_a_fresh_head_is_fresh_and_the_rest_is_the_checkpoint_s(tmp_path, architecture):
    old, new = made(architecture), made(architecture, ["a", "b"])
    build.save(old, tmp_path / "model", Artifact.open(tokenizer(tmp_path, task(tmp_path))).path("tokenizer"))
    before = {name: value.clone() for name, value in new.body.state_dict().items()}
    build.load_encoder(new, tmp_path / "model")
    stored = old.body.state_dict()
    for name, value in new.body.state_dict().items():
        assert torch.equal(value, before[name] if name.startswith(new.body.head_names) else stored[name]), name
    assert {name.split(".")[-2] for name in before if name.startswith(new.body.head_names)} >= {"dense", "classifier"}


@ARCHITECTURES
def test_initial_weights_are_spread_as_the_library_s(architecture):
    wide = ("model.hidden=64", "model.intermediate=96")
    model = made(architecture, LABELS, *wide)
    torch.manual_seed(0)
    library = {"bert": BertForSequenceClassification, "modernbert": ModernBertForSequenceClassification}[architecture]
    for name, value in library(library_config(model)).state_dict().items():
        ours = model.body.state_dict()[name]
        if value.numel() > 1000:
            assert ours.std().item() == pytest.approx(value.std().item(), rel=0.1), name
            assert ours.abs().max().item() == pytest.approx(value.abs().max().item(), rel=0.5), name
        elif value.std() == 0:
            assert torch.equal(ours, value), name


@ARCHITECTURES
def test_dropout_is_where_the_library_has_it(architecture):
    """With dropout both train on noisy states whose spread is the same, and without it there is no noise."""
    noisy, still = made(architecture, LABELS, "model.dropout=0.3"), made(architecture)
    one = Texts(ragged([list(range(5, 35))]), None, 48, SPECIAL)
    inputs = to_device(collate(one, np.zeros(1000, dtype=np.int64)), CPU)
    with torch.no_grad():
        ours, theirs = (
            noisy(inputs, inputs.ids, tokens=False, classes=True)[1],
            library_classes(noisy, inputs, inputs.ids),
        )
        assert ours.std(0).tolist() == pytest.approx(theirs.std(0).tolist(), rel=0.12)
        once, twice = (still(inputs, inputs.ids, tokens=False, classes=True)[1] for _ in range(2))
    assert torch.equal(once, twice)


@ARCHITECTURES
def test_adamw_is_torch_s(architecture):
    model, reference, inputs = made(architecture), made(architecture), inputs_of()
    matrices = [value for value in reference.parameters() if value.ndim > 1]
    others = [value for value in reference.parameters() if value.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    theirs = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98))
    ours = AdamW(model, 0.1, (0.9, 0.98))
    for step in range(4):  # the classification head has a gradient at every other step only, as in training
        for one in (model, reference):
            (internal_loss(one, inputs, 1.0, True, True) if step % 2 else external_loss(one, inputs)).total.backward()
        ours.step(0.01 / (step + 1))
        for group in theirs.param_groups:
            group["lr"] = 0.01 / (step + 1)
        theirs.step()
        theirs.zero_grad()
    for (name, value), other in zip(model.named_parameters(), reference.parameters(), strict=True):
        assert torch.allclose(value, other, atol=1e-5), name


# ---- cost


@ARCHITECTURES
@pytest.mark.parametrize(("tokens", "classes"), [(True, False), (True, True), (False, True)])
def test_flops_are_those_that_torch_counts(architecture, tokens, classes):
    """Where nothing is padded: texts and what is predicted of each; three passes count for forward and backward."""
    batch = evenly_masked_batch()
    model, inputs = made(architecture), to_device(batch, CPU)
    settings = resolve("tiny", [f"model.architecture={architecture}", "model.layers=3"]).model
    with FlopCounterMode(display=False) as counter, torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        model(inputs, inputs.corrupted, tokens=tokens, classes=classes)
    counted = counter.get_total_flops()
    assert FlopCount(settings, VOCABULARY, 3).of(batch, tokens=tokens, classes=classes) == 3 * counted


def test_the_paper_s_estimate_gives_its_own_figure():
    """One row of Table B.1: SciERC at small scale, 150,000 steps of 256 texts of 128 tokens, 109 M parameters."""
    assert paper_flops(109_000_000, 150_000 * 256 * 128) == pytest.approx(3.2e18, rel=0.01)


def test_older_transformers_read_their_own_names_of_a_modernbert() -> None:
    """4.48 to 5.0 take each third layer for a global one, and a base of 160,000, unless these entries say otherwise."""
    config = build.make_config(resolve("pocket").model, VOCABULARY, SPECIAL)
    told = build.for_older(config)
    base = config["rope_parameters"]["full_attention"]["rope_theta"]
    assert {**config, "global_attn_every_n_layers": 1, "global_rope_theta": base, "local_rope_theta": base} == told
    now, before = (AutoConfig.for_model(**one).to_dict() for one in (told, config))
    assert {name: now[name] for name in ("layer_types", "rope_parameters")} == {
        name: before[name] for name in ("layer_types", "rope_parameters")
    }
