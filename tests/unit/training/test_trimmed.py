"""A published model with fewer tokens and layers: texts of the tokens that stay get the same answers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForMaskedLM

from tests.published import write_bert, write_modernbert, write_roberta
from tests.toys_training import GLUE, TOPICS, passages, rows, task
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.settings.options import Compute
from tlm.training.device import to_device
from tlm.training.input.batches import MASK, Masking, collate, generator
from tlm.training.input.texts import Examples
from tlm.training.input.tokenizer import KEPT, trimmed
from tlm.training.model import build
from tlm.training.stages import load_model, train

CPU = torch.device("cpu")
WORDS = [*GLUE, *(word for words in TOPICS.values() for word in words), "zebra", "zeppelin", "quark"]
BOTH = pytest.mark.parametrize("kind", ["bert", "roberta"])


def loaded(root: Path, kind: str, **settings: object) -> Artifact:
    if not (root / kind).exists():
        texts = [*(row[0] for row in rows()), *["zebra zeppelin quark"] * 20]
        if kind == "roberta":
            write_roberta(root / kind, texts)
        else:
            {"bert": write_bert, "modernbert": write_modernbert}[kind](root / kind, WORDS)
    return Artifact.open(load_model(str(root / kind), task(root), preset="tiny", root=str(root), **settings))


def answers(start: Artifact) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of words at masked places, and of classes, of the training texts."""
    model = build.load(start.path("model"), start.path(build.MLM_HEAD)).eval()
    for weights in model.body.classification_head().parameters():  # which are random: the same for all
        torch.nn.init.normal_(weights, generator=torch.Generator().manual_seed(1))
    examples = Examples.open(start.input("task"), start.input("task_tokens"), 48)
    batch, special = collate(examples.texts, np.arange(12)), examples.texts.special
    masked = Masking(0.3, len(model.body.embedding()), special)(batch, generator(0, MASK, 0))
    inputs = to_device(masked, CPU)
    corrupted = torch.where(inputs.corrupted == special.mask, inputs.corrupted, inputs.ids)  # no random words
    with torch.no_grad():
        return model(inputs, corrupted, tokens=True, classes=True)


@BOTH
def test_the_answers_are_those_of_the_whole_model_on_texts_whose_tokens_stay(tmp_path, kind):
    whole, small = loaded(tmp_path, kind), loaded(tmp_path, kind, trim_vocabulary=True)
    kept = np.load(small.input("task_tokens").input("tokenizer").path(KEPT))
    words, classes = answers(whole)
    fewer, same = answers(small)
    assert len(kept) == fewer.shape[1] < words.shape[1]
    assert (fewer - words[:, kept]).abs().max() < 1e-5
    assert (same - classes).abs().max() < 1e-5
    assert small.uri != whole.uri
    assert small.details["parameters"] == whole.details["parameters"] - 32 * (words.shape[1] - len(kept))
    library = AutoModelForMaskedLM.from_pretrained(small.path("model"))
    assert library.config.vocab_size == len(kept)


@BOTH
def test_new_words_are_read_in_pieces(tmp_path, kind):
    small = loaded(tmp_path, kind, trim_vocabulary=True)
    words = Tokenizer.from_file(str(small.path("model") / "tokenizer.json"))
    found = words.encode("the zebra")
    assert words.token_to_id("zebra") is None
    assert len(found.ids) > 5
    assert words.token_to_id("[UNK]" if kind == "bert" else "<unk>") not in found.ids
    assert found.tokens[0] == ("[CLS]" if kind == "bert" else "<s>")


def test_a_subset_s_tokens_stay_too_and_the_model_trains_on_it(tmp_path):
    write_bert(tmp_path / "bert", [*WORDS, "harbour"])
    few = [("the court", None, "law", "train"), ("a judge", None, "sea", "train"), ("the ship", None, "sea", "dev")]
    examples, subset = task(tmp_path, few), passages(tmp_path, "subset")
    common = {"preset": "tiny", "root": str(tmp_path), "trim_vocabulary": True}
    alone, both = (
        Artifact.open(load_model(str(tmp_path / "bert"), examples, **common, **more))
        for more in ({}, {"subset": subset})
    )
    for start, known in ((alone, False), (both, True)):
        words = Tokenizer.from_file(str(start.path("model") / "tokenizer.json"))
        assert (words.token_to_id("enzyme") is not None) == known
        assert words.token_to_id("court") is not None
        assert words.token_to_id("ship" if not known else "zebra") is None  # of dev alone, of neither
    done = train(both.input("task").uri, subset=subset, start=both.uri, preset="tiny", compute=Compute("cpu"),
                 overrides=["train.steps=4", "train.warmup_steps=1"], root=str(tmp_path))  # fmt: skip
    assert Artifact.open(done).entries(build.MLM_HEAD)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])  # one layer of the last one is in our own code
@torch.no_grad()
def test_the_first_layers_alone(tmp_path, kind):
    whole, small = loaded(tmp_path, kind), loaded(tmp_path, kind, layers=1)
    assert (whole.manifest.settings["model"]["layers"], small.manifest.settings["model"]["layers"]) == (2, 1)
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / kind).eval()
    ours = AutoModelForMaskedLM.from_pretrained(small.path("model")).eval()
    ids = torch.arange(12, 30)[None]
    states = theirs.base_model(ids, output_hidden_states=True).hidden_states[1]
    states = theirs.base_model.final_norm(states) if kind == "modernbert" else states
    assert (ours.base_model(ids)[0] - states).abs().max() < 1e-5
    assert answers(small)[0].shape == answers(whole)[0].shape
    model = build.load(small.path("model"), small.path(build.MLM_HEAD)).eval()
    head = {"bert": "cls", "roberta": "lm_head", "modernbert": "head"}[kind]
    words = theirs.get_submodule(head)(states[0])
    words = theirs.decoder(words) if kind == "modernbert" else words
    assert (model.mlm(states[0], model.body.embedding()) - words).abs().max() < 1e-5
    assert loaded(tmp_path, kind, layers=2).uri == whole.uri


def test_what_cannot_be_kept_is_said(tmp_path):
    for layers in (3, -1):
        with pytest.raises(InputError, match=f"layers is {layers} and .* has 2; expected 0 \\(all\\) to 2"):
            loaded(tmp_path, "bert", layers=layers)
    with pytest.raises(InputError, match="which only --trim-vocabulary uses; add that option"):
        loaded(tmp_path, "bert", subset="x")
    with pytest.raises(InputError, match="of kind WordLevel cannot be trimmed"):
        trimmed(Tokenizer(models.WordLevel({"a": 0}, "a")), set())


# ---- tokenizers alone


def learned(kind: str) -> Tokenizer:
    texts = ["abab abba cdcd dcba caab", "abcd bcda abab cdab", "aabbccdd ddccbbaa"] * 3
    common = {"special_tokens": ["[UNK]"], "show_progress": False}
    model, trainer = {
        "WordPiece": (models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=60, **common)),
        "BPE": (models.BPE(), trainers.BpeTrainer(vocab_size=60, **common)),
        "Unigram": (models.Unigram(), trainers.UnigramTrainer(vocab_size=40, unk_token="[UNK]", **common)),
    }[kind]
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


TOKENIZERS = {kind: learned(kind) for kind in ("WordPiece", "BPE", "Unigram")}
TEXTS = st.lists(st.text("abcd ", min_size=1, max_size=12), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(texts=TEXTS, others=TEXTS, kind=st.sampled_from(sorted(TOKENIZERS)))
def test_texts_are_tokenized_alike_where_their_tokens_stay(texts, others, kind):
    whole = TOKENIZERS[kind]
    used = {place for text in texts for place in whole.encode(text).ids}
    small, kept = trimmed(whole, used)
    for text in (*texts, *others):
        before = whole.encode(text)
        if set(before.ids) <= {*kept.tolist()}:
            assert small.encode(text).tokens == before.tokens
            assert kept[small.encode(text).ids].tolist() == before.ids
        assert "[UNK]" not in small.encode(text).tokens or "[UNK]" in before.tokens
