"""Embeddings that start as PPMI-SVD vectors of the texts that are trained on."""

import numpy as np
import pytest
import torch

from tests.toys import ragged
from tests.toys_training import checkpoint, passages, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.data.tasks.labelled import UNLABELLED
from tlm.errors import InputError
from tlm.shallow.static import cooccurrences, ppmi
from tlm.training import joint
from tlm.training import joint as subject
from tlm.training.input.texts import Special, Texts
from tlm.training.input.tokenize import tokenize
from tlm.training.joint import token_vectors

SPECIAL = Special(0, 1, 2, 3, 4)
RANDOM, SVD = "train.embeddings=random", "train.embeddings=ppmi-svd"


def texts(lists: list[list[int]]) -> Texts:
    return Texts(ragged(lists), None, 48, SPECIAL)


def some(seed: int = 0, count: int = 200) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [(5 + random.zipf(1.5, random.integers(2, 20)).clip(1, 50)).tolist() for _ in range(count)]


def test_vectors_are_standardised_singular_vectors_of_ppmi() -> None:
    lists = some()
    tokens, whole = token_vectors([(texts(lists), np.arange(len(lists)))], 60, 60)  # with all, the SVD is exact
    found = whole[:, :8]
    assert tokens.tolist() == sorted({one for text in lists for one in text})
    ids, lengths = np.concatenate([*map(np.array, lists)]).astype(np.int32), np.array([*map(len, lists)])
    left, values, _ = np.linalg.svd(ppmi(cooccurrences(ids, lengths, 60)).toarray())
    expected = (left[:, :8] * np.sqrt(values[:8]))[tokens]
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    signs = np.sign((expected * found).sum(axis=0))
    assert np.allclose(found, expected * signs, atol=1e-3)
    assert np.allclose(found.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(found.std(axis=0), 1, atol=1e-5)


def test_only_the_rows_that_are_given_are_read() -> None:
    lists = some()
    half = np.arange(0, 200, 2)
    alone = token_vectors([(texts(lists[::2]), np.arange(100))], 60, 8)
    for one, other in zip(token_vectors([(texts(lists), half)], 60, 8), alone, strict=True):
        assert np.array_equal(one, other)


def test_of_many_texts_some_at_even_distances_are_read(monkeypatch) -> None:
    lists = some()
    monkeypatch.setattr(subject, "MOST_TOKENS", sum(map(len, lists)) // 2 + 1)
    found = token_vectors([(texts(lists), np.arange(200))], 60, 8)[0]
    assert found.tolist() == sorted({one for text in lists[::2] for one in text})


def test_few_texts_give_fewer_dimensions() -> None:
    tokens, found = token_vectors([(texts([[7, 8], [8, 9]]), np.arange(2))], 60, 32)
    assert tokens.tolist() == [7, 8, 9]
    assert 0 < found.shape[1] < 32
    assert np.isfinite(found).all()
    assert token_vectors([(texts([[]]), np.arange(1))], 60, 32)[1].shape[0] == 0


@pytest.fixture
def begun(monkeypatch):
    """The embeddings that stage 1 begins with, by the settings that it was given."""
    found = {}

    def fit(state, *arguments):
        found["table"] = state.model.body.embedding().detach().clone()
        raise InputError("enough")

    monkeypatch.setattr(joint, "fit", fit)

    def begin(root, examples, *overrides, **settings):
        with pytest.raises(InputError, match="enough"):
            checkpoint(root, examples, *overrides, **settings)
        return found["table"]

    return begin


def test_stage_1_begins_with_them_at_the_scale_of_fresh_embeddings(tmp_path, begun) -> None:
    all_rows = [*rows(), ("ship wave ship wave ship sail", None, "", UNLABELLED)]
    examples = task(tmp_path, all_rows)
    fresh, table = begun(tmp_path, examples, RANDOM), begun(tmp_path, examples, SVD)
    words = tokenizer(tmp_path, examples)
    own, fetched = (
        Texts.open(Artifact.open(tokenize(data, words, root=str(tmp_path))), 48)
        for data in (examples, passages(tmp_path, "subset"))
    )
    train = np.flatnonzero([split in ("train", UNLABELLED) for *_, split in all_rows])
    tokens, vectors = token_vectors([(own, train), (fetched, np.arange(len(fetched)))], *fresh.shape)
    expected = fresh.clone()
    expected[torch.from_numpy(tokens), : vectors.shape[1]] = torch.from_numpy(vectors) * fresh.std()
    assert torch.allclose(table, expected, atol=1e-6)
    assert not torch.allclose(table, fresh, atol=1e-3)


def test_the_setting_is_in_the_key_only_where_it_matters(tmp_path) -> None:
    examples = task(tmp_path)
    plain, svd = checkpoint(tmp_path, examples, RANDOM), checkpoint(tmp_path, examples, SVD)
    assert "embeddings" not in plain.manifest.settings["train"]
    assert svd.manifest.settings["train"]["embeddings"] == "ppmi-svd"
    assert svd.content != plain.content
    again = checkpoint(tmp_path, examples, SVD, start=plain.uri)
    assert "embeddings" not in again.manifest.settings["train"]
