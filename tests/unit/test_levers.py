"""Other masks, orders and shared layers: their shares, their units, and that nothing is lost."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toys_training import SMALL, checkpoint, model, passages, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.settings.presets import resolve
from tlm.training.input.batches import MASK, Masking, collate, generator
from tlm.training.input.curriculum import Growing, rarity
from tlm.training.input.masks import LONGEST, continuing, masking, rare_shares
from tlm.training.input.texts import Ragged, Special, Texts
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.model import build
from tlm.training.stages import train

VOCABULARY, SPECIAL, SHARE = 60, Special(0, 1, 2, 3, 4), 0.15
CONTINUES = np.arange(VOCABULARY) >= 35


def many(count: int) -> Texts:
    chance = np.random.default_rng(0)
    rows = [(5 + 55 * chance.random(chance.integers(0, 60)) ** 2).astype(int).tolist() for _ in range(count)]
    return Texts(Ragged.of(rows), None, 64, SPECIAL)


def of_kind(kind: str, texts: Texts) -> Masking:
    settings = resolve("tiny", [f"train.masking={kind}", f"train.mask_share={SHARE}"])
    return masking(settings.train, VOCABULARY, SPECIAL, CONTINUES, lambda: counts_of(texts))


def counts_of(texts: Texts) -> np.ndarray:
    return np.bincount(texts.first.ids, minlength=VOCABULARY)


@pytest.mark.parametrize("kind", ["tokens", "words", "spans", "rare"])
def test_every_kind_of_masks_has_the_share_and_bert_s_fates(kind):
    texts = many(6000)
    masked = of_kind(kind, texts)(collate(texts, np.arange(6000)), generator(0, MASK, 0))
    assert masked.masked / (masked.ids >= 5).sum() == pytest.approx(SHARE, abs=0.005)
    assert np.array_equal(masked.targets, masked.ids.ravel()[masked.positions])
    assert not np.isin(masked.targets, SPECIAL.ids).any()
    now = masked.corrupted.ravel()[masked.positions]
    assert (now == SPECIAL.mask).mean() == pytest.approx(0.8, abs=0.02)
    assert (now == masked.targets).mean() == pytest.approx(0.1, abs=0.02)


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_whole_words_are_predicted_whole(seed):
    texts = many(30)
    batch = collate(texts, np.arange(30))
    masked = of_kind("words", texts)(batch, np.random.default_rng(seed))
    chosen = np.zeros(batch.ids.size, dtype=bool)
    chosen[masked.positions] = True
    chosen, flat = chosen.reshape(batch.ids.shape), batch.ids
    inside = CONTINUES[flat[:, 1:]] & (flat[:, :-1] >= 5)
    assert inside.any()
    assert np.array_equal(chosen[:, 1:][inside], chosen[:, :-1][inside])


def test_spans_have_up_to_ten_tokens_of_one_text():
    texts = many(3000)
    flat = collate(texts, np.arange(3000)).ids.ravel()
    candidates = np.flatnonzero(flat >= 5)
    units = of_kind("spans", texts).units
    unit = units(flat, candidates, np.random.default_rng(0))
    lengths = np.bincount(unit)
    assert 1 <= lengths.min() <= lengths.max() == LONGEST
    together = np.diff(unit) == 0
    assert (np.diff(candidates)[together] == 1).all()
    long = Texts(Ragged.of([[5] * 50_000]), None, 60_000, SPECIAL)
    flat = collate(long, np.arange(1)).ids.ravel()
    units_of_one = units(flat, np.flatnonzero(flat >= 5), np.random.default_rng(0))
    assert np.bincount(units_of_one).mean() == pytest.approx((1 - 0.8**10) / 0.2, rel=0.03)


@given(st.lists(st.integers(0, 10**6), min_size=6, max_size=40), st.floats(0.01, 0.9))
def test_rare_tokens_are_predicted_more_often_and_still_read(counts, share):
    counts = np.array([7, 7, 7, 7, 7, *counts, 3])
    shares = rare_shares(counts, SPECIAL, share)
    ordinary = np.arange(5, len(counts))
    assert counts[ordinary] @ shares[ordinary] == pytest.approx(share * counts[ordinary].sum(), rel=1e-6)
    by_count = ordinary[np.argsort(counts[ordinary], kind="stable")]
    assert (np.diff(shares[by_count]) <= 1e-12).all()
    assert shares.max() <= (1 + share) / 2


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_what_continues_a_word_is_known(tmp_path, kind):
    words = Artifact.open(tokenizer(tmp_path, task(tmp_path), kind=kind))
    size = int(words.details["vocab_size"])
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(words.path("tokenizer") / "tokenizer.json"))
    found = encoder.encode("the verdictverdict of blood", add_special_tokens=False)
    begins = [place == 0 or word != found.word_ids[place - 1] for place, word in enumerate(found.word_ids)]
    assert not all(begins)
    assert (~continuing(words, size + 3)[found.ids]).tolist() == begins


@given(st.integers(1, 400), st.integers(1, 9), st.integers(1, 80))
@settings(max_examples=40, deadline=None)
def test_a_pool_grows_from_the_easiest_and_then_every_row_is_read(rows, batch, growing):
    chance = np.random.default_rng(rows)
    hardness, lengths = chance.permutation(rows), chance.integers(3, 50, rows)
    order = Growing(hardness, growing, lengths, batch, seed=1, stream=0)
    hardest = [hardness[order.rows(index)].max() for index in range(growing)]
    chunks = -(-growing // 32)
    for chunk in range(chunks):
        pool = max(32 * batch, rows * (chunk + 1) * 32 // growing)
        assert max(hardest[32 * chunk : 32 * (chunk + 1)]) < pool
    after = np.concatenate([order.rows(growing + index) for index in range(order.per_epoch)])
    assert sorted(after.tolist()) == list(range(rows))
    sizes = [len(order.rows(index)) for index in range(growing)]
    assert max(sizes) <= batch


def test_rarity_is_the_mean_surprise_of_a_text():
    texts = Texts(Ragged.of([[5, 5], [], [5, 6, 6]]), None, 8, SPECIAL)
    counts = np.array([0, 0, 0, 0, 0, 6, 2])
    common, rare = np.log(8 / 6), np.log(4)
    assert rarity(texts, np.array([2, 0, 1]), counts) == pytest.approx([(common + 2 * rare) / 3, common, 0])


def test_stage_1_trains_with_each_and_not_alike(tmp_path):
    examples, root = task(tmp_path), str(tmp_path)
    corpus, subset = passages(tmp_path, "corpus"), passages(tmp_path, "subset")
    words = build_tokenizer(corpus, examples, kind="bpe", vocab_size=300, root=root)  # words of several pieces

    def embedding(*lever: str) -> torch.Tensor:
        given = {"tokenizer": words, "subset": subset, "preset": "tiny", "overrides": [*SMALL, *lever], "root": root}
        return build.load(Artifact.open(train(examples, **given)).path("model")).body.embedding()

    levers = ("masking=words", "masking=spans", "masking=rare", "order=length", "order=rarity")
    found = [embedding(), *(embedding(f"train.{lever}") for lever in levers)]
    assert all(not torch.equal(one, other) for one, other in combinations(found, 2))


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_shared_layers_are_one_layer_in_both_stages_and_are_written_as_several(tmp_path, architecture):
    from transformers import AutoModelForSequenceClassification

    examples, kind = task(tmp_path), f"model.architecture={architecture}"
    start = checkpoint(tmp_path, examples, kind, "model.share_layers=true", "model.layers=3")
    end = model(tmp_path, start, examples, "finetune.steps=4", preset="tiny")
    plain = checkpoint(tmp_path, examples, kind, "model.layers=3")
    assert start.details["parameters"] < plain.details["parameters"]
    for made in (start, end):
        ours = build.load(made.path("model")).body
        first, *others = ours.layers()
        for layer in others:
            for name, value in layer.named_parameters():
                if "attn_norm" not in name:
                    assert value is first.get_parameter(name)
        theirs = AutoModelForSequenceClassification.from_pretrained(made.path("model"))
        assert theirs.num_parameters() > start.details["parameters"]
        assert {name: value.shape for name, value in theirs.state_dict().items()} == {
            name: value.shape for name, value in ours.state_dict().items()
        }
        assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in ours.state_dict().items())
    assert not torch.equal(
        *(build.load(one.path("model")).body.layers()[2].state_dict().popitem()[1] for one in (start, end))
    )
