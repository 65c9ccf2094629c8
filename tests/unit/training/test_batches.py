"""Batches: cut and laid out as the library does it, each row once an epoch, masked by BERT's rule."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.toys import ragged
from tlm.data.ranges import offsets_of
from tlm.training.input.batches import MASK, ORDER, Batch, Masking, Stream, collate, generator, split
from tlm.training.input.texts import Ragged, Special, Texts
from tlm.training.input.tokenizer import SPECIAL, with_layout

VOCABULARY = 60
PAD_TO_MASK = Special(0, 1, 2, 3, 4)

ids = st.lists(st.integers(5, VOCABULARY - 1), max_size=30)


def library() -> Tokenizer:
    """A tokenizer whose words are its ids, so that the library's own cutting and padding is the reference."""
    words = [*SPECIAL.values(), *map(str, range(5, VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return with_layout(tokenizer, SPECIAL)


def texts(rows: list[list[int]], second: list[list[int]] | None = None, max_length: int = 64) -> Texts:
    return Texts(ragged(rows), None if second is None else ragged(second), max_length, PAD_TO_MASK)


def many(count: int, seed: int = 0) -> Texts:
    chance = np.random.default_rng(seed)
    return texts([chance.integers(5, VOCABULARY, chance.integers(0, 60)).tolist() for _ in range(count)])


# ---- layout


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=6), st.integers(8, 40), st.booleans())
def test_batches_are_what_the_library_makes(rows, max_length, pair):
    first, second = [row[0] for row in rows], [row[1] for row in rows]
    tokenizer = library()
    tokenizer.enable_truncation(max_length, strategy="longest_first")
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
    plain = [" ".join(map(str, row)) for row in first]
    expected = tokenizer.encode_batch(
        list(zip(plain, (" ".join(map(str, row)) for row in second), strict=True)) if pair else plain
    )
    batch = collate(texts(first, second if pair else None, max_length), np.arange(len(rows)))
    assert batch.ids.tolist() == [encoding.ids for encoding in expected]
    assert batch.lengths.tolist() == [sum(encoding.attention_mask) for encoding in expected]
    if pair:
        assert batch.types is not None
        assert batch.types.tolist() == [encoding.type_ids for encoding in expected]
    else:
        assert batch.types is None


def test_rows_and_labels_go_together():
    labels = np.array([10, 11, 12])
    batch = collate(texts([[5], [6, 6], [7]]), np.array([2, 0]), labels)
    assert batch.ids.tolist() == [[2, 7, 3], [2, 5, 3]]
    assert batch.labels.tolist() == [12, 10]
    assert (batch.tokens, batch.of_rows, batch.of_masked) == (6, 2, 0)
    assert batch.padded == 2 * 64


# ---- order


def stream(lengths: np.ndarray, size: int, seed: int, number: int) -> Stream:
    """Of texts of these lengths, special tokens included; they have no content."""
    empty = Ragged(np.zeros(0, np.int64), offsets_of(lengths - 2))
    return Stream(Texts(empty, None, 64, PAD_TO_MASK), np.arange(len(lengths)), size, seed, number)


@settings(max_examples=40)
@given(st.integers(1, 3000), st.integers(1, 20), st.integers(0, 3))
def test_the_order_is_that_of_lists_of_64_bit_rows(rows, size, epoch):
    """As it was made at first: trained models depend on it."""
    lengths = np.random.default_rng(rows).integers(3, 50, rows)
    random = generator(2, ORDER, 1, epoch)
    shuffled = random.permutation(rows)
    batches: list = []
    for start in range(0, rows, 32 * size):
        chunk = shuffled[start : start + 32 * size]
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        batches += np.array_split(chunk, -(-len(chunk) // size))
    expected = [batches[place] for place in random.permutation(len(batches))]
    order = stream(lengths, size, seed=2, number=1)
    found = [order.rows_of(epoch * order.per_epoch + place) for place in range(order.per_epoch)]
    assert [batch.tolist() for batch in found] == [batch.tolist() for batch in expected]
    assert {batch.dtype for batch in found} == {np.dtype(np.int64)}


def test_an_order_takes_few_bytes_a_row():
    rows = 200_000
    order = stream(np.random.default_rng(0).integers(3, 50, rows), 16, seed=0, number=0)
    tracemalloc.start()
    try:
        order.rows_of(0)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / rows < 5
    assert peak / rows < 8


# ---- masks


CONTINUES = np.arange(VOCABULARY) >= 35


@pytest.fixture(scope="module", params=[None, CONTINUES], ids=["tokens", "words"])
def masked(request: pytest.FixtureRequest) -> Batch:
    batch = collate(many(4000), np.arange(4000))
    return Masking(0.15, VOCABULARY, PAD_TO_MASK, request.param)(batch, generator(0, MASK, 0))


def test_masks_have_bert_s_shares(masked):
    ordinary = (masked.ids >= 5).sum()
    assert masked.of_masked / ordinary == pytest.approx(0.15, abs=0.005)
    assert masked.of_masked == len(masked.positions) == len(masked.targets)
    now = masked.corrupted.ravel()[masked.positions]
    assert (now == PAD_TO_MASK.mask).mean() == pytest.approx(0.8, abs=0.015)
    kept = (now == masked.targets).mean()  # the 10 % kept, and a replacement that happens to be the same
    assert kept == pytest.approx(0.1 + 0.1 / (VOCABULARY - 5), abs=0.012)
    replaced = now[(now != PAD_TO_MASK.mask) & (now != masked.targets)]
    assert np.bincount(replaced, minlength=VOCABULARY)[5:].min() > 0


def test_special_tokens_are_neither_chosen_nor_drawn(masked):
    assert not np.isin(masked.targets, PAD_TO_MASK.ids).any()
    now = masked.corrupted.ravel()[masked.positions]
    assert not np.isin(now[now != PAD_TO_MASK.mask], PAD_TO_MASK.ids).any()


def test_the_rest_is_as_it_was(masked):
    assert (np.diff(masked.positions) > 0).all()
    assert np.array_equal(masked.targets, masked.ids.ravel()[masked.positions])
    untouched = np.setdiff1d(np.arange(masked.ids.size), masked.positions)
    assert np.array_equal(masked.corrupted.ravel()[untouched], masked.ids.ravel()[untouched])


@given(st.lists(ids, min_size=1, max_size=6), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_the_pieces_of_a_word_are_predicted_together(rows, seed):
    """And have one fate: where one is masked, all are."""
    batch = collate(texts(rows), np.arange(len(rows)))
    masked = Masking(0.5, VOCABULARY, PAD_TO_MASK, CONTINUES)(batch, np.random.default_rng(seed))
    chosen = np.zeros(batch.ids.shape, dtype=bool)
    chosen.ravel()[masked.positions] = True
    follows = CONTINUES[batch.ids[:, 1:]] & (batch.ids[:, :-1] >= 5)
    for fate in (chosen, masked.corrupted == 4):
        assert np.array_equal(fate[:, 1:][follows], fate[:, :-1][follows])


def test_masks_are_a_function_of_seed_and_step():
    masking = Masking(0.15, VOCABULARY, PAD_TO_MASK)
    batch = collate(many(50), np.arange(50))
    same, again = (masking(batch, generator(7, MASK, 3)).corrupted for _ in range(2))
    assert np.array_equal(same, again)
    for other in (generator(8, MASK, 3), generator(7, MASK, 4)):
        assert not np.array_equal(same, masking(batch, other).corrupted)


@given(st.lists(ids, min_size=1, max_size=6), st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_queries_are_each_text_s_first_token_and_what_is_to_be_predicted_of_it(rows, seed):
    batch = collate(texts(rows), np.arange(len(rows)))
    batch = Masking(0.3, VOCABULARY, PAD_TO_MASK)(batch, np.random.default_rng(seed))
    queries, places = batch.queries()
    width = batch.ids.shape[1]
    assert queries[:, 0].tolist() == [row * width for row in range(len(rows))]
    assert queries.ravel()[places].tolist() == batch.positions.tolist()
    filled = np.delete(queries.ravel(), places).reshape(-1)
    assert set(filled.tolist()) == set(queries[:, 0].tolist())
    assert (queries // width == np.arange(len(rows))[:, None]).all()
    assert queries.shape[1] == 1 + batch.masked_by_row().max()


def test_texts_without_words_have_nothing_to_predict():
    batch = Masking(0.15, VOCABULARY, PAD_TO_MASK)(collate(texts([[], []]), np.arange(2)), generator(0, MASK, 0))
    assert batch.of_masked == 0
    assert np.array_equal(batch.corrupted, [[2, 3], [2, 3]])


@given(st.integers(1, 12), st.integers(1, 15))
def test_parts_make_up_the_batch(rows, parts):
    whole = Masking(0.3, VOCABULARY, PAD_TO_MASK)(
        collate(many(20), np.arange(rows), np.arange(20)), generator(0, MASK, 0)
    )
    pieces = split(whole, parts)
    assert len(pieces) == min(rows, parts)
    assert np.array_equal(np.concatenate([piece.corrupted for piece in pieces]), whole.corrupted)
    assert np.array_equal(np.concatenate([piece.labels for piece in pieces]), whole.labels)
    assert np.array_equal(np.concatenate([piece.targets for piece in pieces]), whole.targets)
    for piece in pieces:
        assert np.array_equal(piece.ids.ravel()[piece.positions], piece.targets)
        assert (piece.of_rows, piece.of_masked) == (rows, whole.of_masked)
