"""The attention study: heads made by hand are known for what they are, and weights are what the formula gives."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from research.attention.encode import KINDS, PLACES, SHARES, AttentionReader, kind_of, looks
from research.attention.step import attention
from research.attention.subjects import subjects
from tests.toy_reports import HOSTILE, is_safe
from tests.toys import make_task, random_model, read_json, words
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError

TOKENS = ["[CLS]", "a", "b", ".", "c", "d", "e", "f", "[SEP]"]
SPECIAL = np.array([token.startswith("[") for token in TOKENS])
PERIOD = np.array([token == "." for token in TOKENS])
LABELS = ["blue", "green", "red"]


def pointing(to: list[int], strength: float = 0.4) -> np.ndarray:
    """A head in which each token gives `strength` to one key and shares the rest evenly."""
    size = len(to)
    weights = np.full((size, size), (1 - strength) / (size - 1))
    weights[np.arange(size), to] = strength
    return weights


def shares(weights: np.ndarray, special: np.ndarray = SPECIAL, period: np.ndarray = PERIOD) -> dict[str, float]:
    found = looks(weights, special, period) / (~special).sum()
    return dict(zip(SHARES, found.tolist(), strict=True))


PREVIOUS = [0, 0, 1, 2, 3, 4, 5, 6, 7]
NEXT = [1, 2, 3, 4, 5, 6, 7, 8, 8]


@pytest.mark.parametrize(
    ("to", "kind"),
    [
        (PREVIOUS, "positional"),
        (NEXT, "positional"),
        ([1, 0, 3, 2, 3, 4, 7, 6, 7], "positional"),  # before or after, by turns
        ([0] * 9, "vertical"),
        ([8] * 9, "vertical"),
        ([3] * 9, "vertical"),
        ([5, 8, 0, 0, 3, 3, 8, 8, 5], "vertical"),
        (list(range(9)), "other"),  # every token looks at itself
        ([5] * 9, "other"),  # a column of a word that is neither
        ([0, 0, 1, 2, 3, 1, 1, 6, 7], "other"),  # five of seven look back
    ],
)
def test_heads_made_by_hand(to, kind):
    assert kind_of(shares(pointing(to)), 0.9) == kind


def test_shares_of_a_head_made_by_hand():
    to = [0, 0, 2, 8, 3, 6, 1, 8, 0]  # of a b . c d e f: before, itself, [SEP], before, after, elsewhere, after
    expected = {"previous": 2, "next": 2, "itself": 1, "special": 1, "period": 0, "elsewhere": 1}
    found = shares(pointing(to))
    assert {name: round(7 * found[name]) for name in PLACES} == expected
    assert found["adjacent"] == pytest.approx(4 / 7)
    assert found["vertical"] == pytest.approx(4 / 7)  # a to [CLS], . and f to [SEP], c to the period


def test_an_even_head_is_of_neither_kind():
    """The first of equal maxima is [CLS]: a plain argmax would call this head vertical."""
    even = np.full((9, 9), 1 / 9)
    found = shares(even)
    assert kind_of(found, 0.9) == "other"
    assert found["vertical"] == pytest.approx(3 / 9)
    assert sum(found[name] for name in PLACES) == pytest.approx(1)


def test_the_paper_s_limits():
    """At least 90 % are positional, more than 90 % vertical."""
    assert kind_of({"adjacent": 0.9, "vertical": 0.0}, 0.9) == "positional"
    assert kind_of({"adjacent": 0.0, "vertical": 0.9}, 0.9) == "other"
    assert kind_of({"adjacent": 0.0, "vertical": 0.91}, 0.9) == "vertical"


def by_loops(weights: np.ndarray, special: np.ndarray, period: np.ndarray) -> list[float]:
    """`looks` for one head, token by token and key by key."""
    found = dict.fromkeys(SHARES, 0.0)
    for asking in range(len(weights)):
        if special[asking]:
            continue
        best = [key for key in range(len(weights)) if weights[asking, key] == max(weights[asking])]
        for key in best:
            near = {-1: "previous", 1: "next", 0: "itself"}.get(key - asking)
            place = near or ("special" if special[key] else "period" if period[key] else "elsewhere")
            found[place] += 1 / len(best)
            found["adjacent"] += (abs(key - asking) == 1) / len(best)
            found["vertical"] += bool(special[key] or period[key]) / len(best)
    return [found[name] for name in SHARES]


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 9), st.integers(0, 2**32 - 1), st.integers(2, 50))
def test_looks_is_what_loops_count(size, seed, grades):
    random = np.random.default_rng(seed)
    weights = random.integers(0, grades, (2, 3, size, size)) / 10  # few grades: many ties
    special, period = random.random(size) < 0.3, random.random(size) < 0.2
    special[1] = False
    found = looks(weights, special, period)
    expected = [[by_loops(head, special, period) for head in layer] for layer in weights]
    assert found == pytest.approx(np.array(expected))


# ---- weights


def test_bert_s_weights_are_those_of_the_formula(tmp_path):
    """softmax(q·k / sqrt(d)) out of the file's tensors, without `transformers`; the shorter text of two is padded."""
    from safetensors.torch import load_file

    task = make_task(tmp_path, [(text, None, LABELS[i % 3], "test") for i, text in enumerate(words(6, 0))], "accuracy",
                     LABELS)  # fmt: skip
    _, model = random_model(tmp_path, task, [f"{text} ." for text in words(30, 1)], "bert")
    folder = Artifact.open(model).path("model")
    reader = AttentionReader(folder, "cpu", 24)
    texts = ["alpha beta . gamma", "delta epsilon zeta eta theta alpha beta"]
    seen = list(reader.read(texts))
    assert [bool(one.period.any()) for one in seen] == [True, False]
    assert [one.special.sum() for one in seen] == [2, 2]
    tensors = load_file(folder / "model.safetensors")
    for text, one in zip(texts, seen, strict=True):
        ids = reader.tokenizer(text)["input_ids"]
        assert one.weights.shape == (2, 2, len(ids), len(ids))
        assert np.abs(one.weights.sum(-1) - 1).max() < 1e-5
        assert one.weights[0] == pytest.approx(first_layer(tensors, ids), abs=1e-5)


def first_layer(tensors: dict[str, torch.Tensor], ids: list[int], heads: int = 2) -> np.ndarray:
    def table(name: str) -> np.ndarray:
        return tensors[f"bert.{name}"].double().numpy()

    hidden = table("embeddings.word_embeddings.weight")[ids]
    hidden = hidden + table("embeddings.position_embeddings.weight")[: len(ids)]
    hidden = hidden + table("embeddings.token_type_embeddings.weight")[0]
    hidden = (hidden - hidden.mean(1, keepdims=True)) / np.sqrt(hidden.var(1, keepdims=True) + 1e-12)
    hidden = hidden * table("embeddings.LayerNorm.weight") + table("embeddings.LayerNorm.bias")
    part = "encoder.layer.0.attention.self."
    query, key = (hidden @ table(f"{part}{name}.weight").T + table(f"{part}{name}.bias") for name in ("query", "key"))
    width = query.shape[1] // heads
    found = []
    for head in range(heads):
        columns = slice(head * width, (head + 1) * width)
        scores = np.exp(query[:, columns] @ key[:, columns].T / np.sqrt(width))
        found.append(scores / scores.sum(1, keepdims=True))
    return np.array(found)


# ---- the study


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A task with hostile texts, a checkpoint, a model, and a BERT and a RoBERTa folder as `save_pretrained` writes."""
    from transformers import AutoTokenizer, BertConfig, BertModel, RobertaConfig, RobertaModel

    root = tmp_path_factory.mktemp("attention")
    texts = [*HOSTILE, *words(17, 0)]
    rows = [(text, None, LABELS[i % 3], "train" if i < 4 else "test") for i, text in enumerate(texts)]
    task = make_task(root, rows, "accuracy", LABELS)
    checkpoint, model = random_model(root, task, words(30, 1), "modernbert")
    tokenizer = AutoTokenizer.from_pretrained(Artifact.open(model).path("model"))
    shape = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
             "intermediate_size": 48, "max_position_embeddings": 40}  # fmt: skip
    for name, kind in (("bert", BertModel(BertConfig(**shape))), ("roberta", RobertaModel(RobertaConfig(**shape)))):
        kind.save_pretrained(root / "folders" / name)
        tokenizer.save_pretrained(root / "folders" / name)
    return root, task, checkpoint, model


def test_several_models_side_by_side(world):
    root, task, checkpoint, model = world
    folders = [str(root / "folders" / name) for name in ("bert", "roberta")]
    uri = attention([model, checkpoint, *folders], task=task, root=str(root))
    study = Artifact.open(uri, "study")
    told = read_json(study, "study.json")
    assert [one["name"] for one in told["models"]] == [
        "task-only, seed 5", "task-only, stage 1, seed 5", "bert", "roberta",
    ]  # fmt: skip
    assert [len(one["heads"]) for one in told["models"]] == [4, 4, 12, 12]
    assert told["models"][0]["architecture"] == "modernbert"
    for one in told["models"]:
        assert sum(one["counts"].values()) == len(one["heads"])
        for kind in KINDS:
            assert sum(layer[kind] for layer in one["layers"]) == one["counts"][kind]
        assert sum(one["share"][name] for name in PLACES) == pytest.approx(1)
    heads = pq.read_table(study.path("heads.parquet")).to_pylist()
    assert [(row["model"], row["layer"], row["head"]) for row in heads][-1] == ("roberta", 3, 4)
    html = study.path("study.html").read_text(encoding="utf-8")
    is_safe(html)
    for name in ("task-only, stage 1", "roberta", "Kovaleva et al. 2019"):
        assert name in html
        assert name in study.path("study.md").read_text(encoding="utf-8")
    assert study.counts["examples"] == 20
    assert json.loads(study.path("study.json").read_text())["groups"][0]["models"] == 1
    assert attention([model, checkpoint, *folders], task=task, root=str(root)) == uri


def test_equal_content_twice(world, tmp_path):
    root, task, _, model = world
    options = {"task": task, "examples": 5}
    shutil.copytree(root, tmp_path, ignore=shutil.ignore_patterns("study"), dirs_exist_ok=True)
    contents = {Artifact.open(attention([model], **options, root=str(place))).content for place in (root, tmp_path)}
    assert len(contents) == 1


def test_a_folder_with_other_weights_is_another_study(world, tmp_path):
    from safetensors.torch import load_file, save_file

    root, task, _, _ = world
    folder = tmp_path / "bert"
    shutil.copytree(root / "folders" / "bert", folder)
    first = attention([str(folder)], task=task, examples=3, root=str(root))
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value * 2 for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    assert attention([str(folder)], task=task, examples=3, root=str(root)) != first


def test_wrong_settings_in_a_sentence(world, tmp_path):
    root, task, checkpoint, model = world
    empty = tmp_path / "empty"
    empty.mkdir()
    for models, options, expected in [
        ([], {}, "at least one model"),
        ([model, model], {}, "are both called 'task-only, seed 5'"),
        ([model], {"names": ["a", "b"]}, "2 names for 1 models"),
        ([model], {"threshold": 0.4}, "threshold is 0.4"),
        ([model], {"split": "dev"}, "no examples in split 'dev'"),
        ([model], {"split": "tset"}, "no examples in split 'tset'"),
        ([str(empty)], {}, "has no config.json"),
        ([task], {}, "expected a model or a checkpoint"),
        ([checkpoint], {"examples": 0}, "examples is 0"),
    ]:
        with pytest.raises(InputError, match=expected):
            attention(models, task=task, root=str(root), **options)


def test_a_folder_without_weights_is_told(world, tmp_path):
    root, task, _, _ = world
    folder = tmp_path / "bert"
    shutil.copytree(root / "folders" / "bert", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(InputError, match="does not load as an encoder"):
        attention([str(folder)], task=task, root=str(root))


def test_names_replace_what_models_are_called(world):
    _, _, checkpoint, model = world
    found = subjects([model, checkpoint], ["a", "b"])
    assert [(one.name, one.group) for one in found] == [("a", "a"), ("b", "b")]
