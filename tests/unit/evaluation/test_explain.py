"""`explain`: exact numbers add up to what the model computes, hints point the right way, texts are the nearest ones."""

import json
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from tests.tiny import refused
from tests.toys import Row, make_task, random_model, words
from tests.unit.shallow.test_shallow import KINDS, fitted, rows_of, subset_of, task_of
from tlm.artifacts.artifact import Artifact
from tlm.cli.show import explain
from tlm.cli.upkeep import download
from tlm.errors import InputError
from tlm.evaluation.origins.explain import blocks, characters, exact, explained, gradient, left_out, taught, telling
from tlm.evaluation.pages.plain import terminal
from tlm.evaluation.score.baseline import baseline, static
from tlm.evaluation.score.mix import mix
from tlm.shallow.models import ShallowPredictor
from tlm.shallow.static import StaticModel
from tlm.shallow.tfidf import Tfidf

shallow = cache(fitted)
WORDS = ["alpha", "beta", "Hitze", "ist", "because", "of", "unknown", "漢字", "[[ alpha one ]]", "<< beta >>", "?!", ""]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def expected(model: Tfidf | StaticModel, totals: np.ndarray) -> np.ndarray:
    """What a model predicts whose logits (or numbers) are these."""
    if model.labels is None:
        return totals
    if model.linear.softmax:
        return softmax(totals / model.linear.temperature)
    powers = expit(totals) ** (1 / model.linear.temperature)
    return powers / powers.sum()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", ["baseline", "static"])
@given(text=TEXTS, second=st.none() | TEXTS)
@settings(max_examples=25, deadline=None)
def test_exact_numbers_add_up_to_what_the_model_predicts(step: str, kind: str, text: str, second: str | None) -> None:
    model = shallow(step, kind)
    found = [exact(model, text, second, place) for place in range(len(model.labels or [""]))]
    totals = np.array([one.bias + sum(one.features.values()) for one in found])
    predicted = model.predict([text], None if second is None else [second])[0]
    assert np.allclose(expected(model, totals), predicted, atol=1e-6)


def test_the_two_classes_of_one_row_have_opposite_numbers(tmp_path: Path) -> None:
    rows: list[Row] = [
        (f"{text} {'good' if place % 2 else 'bad'}", None, "ny"[place % 2], ("train", "dev", "test")[place // 40])
        for place, text in enumerate(words(90, 2))
    ]
    task = make_task(tmp_path, rows, "accuracy", ["n", "y"])
    metrics = baseline(task, root=str(tmp_path))
    (no, yes) = (explained(metrics, "a good one", None, label, 3, "cpu") for label in "ny")
    assert no["answer"] == pytest.approx(1 - yes["answer"])
    features, opposite = yes["parts"][0]["features"], no["parts"][0]["features"]
    assert features == {name: -value for name, value in opposite.items()}
    assert next(iter(features)) == "good"
    assert features["good"] > 0
    temperature = Artifact.open(metrics).json("metrics.json")["chosen"]["temperature"]
    assert temperature != 1
    assert yes["answer"] == pytest.approx(expit((yes["parts"][0]["bias"] + sum(features.values())) / temperature))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """URIs of metrics: linear, static, and both mixed, of a task whose words tell the class."""
    root = tmp_path_factory.mktemp("made")
    task, subset = task_of(root, "plain"), subset_of(root, [f"{text} because of" for text in words(30, 3)] + ["zeta"])
    linear, vectors = baseline(task, root=str(root)), static(task, subset=subset, root=str(root))
    return {"linear": linear, "static": vectors, "mixture": mix([linear, vectors], root=str(root)), "root": str(root)}


@pytest.mark.parametrize("name", ["linear", "static", "mixture"])
def test_parts_add_up_to_the_answer_and_a_training_text_is_nearest_to_itself(made: dict[str, str], name: str) -> None:
    text, _, label, _ = rows_of("plain")[7]
    found = explained(made[name], text, None, "", 4, "cpu")
    assert found["label"] == label
    assert sum(part["adds"] for part in found["parts"]) == pytest.approx(found["answer"])
    assert f"{found['parts'][0]['adds']:.4f} to the probability" in terminal(blocks(found, 2))
    kinds = {"linear": ["linear"], "static": ["static"], "mixture": ["linear", "static"]}
    assert [part["model"] for part in found["parts"]] == kinds[name]
    first, *others = found["nearest"]
    assert (first["id"], first["label"], first["text"]) == ("e7", label, text)
    assert first["similarity"] == pytest.approx(1)
    assert len(others) == 3
    similar = [row["similarity"] for row in found["nearest"]]
    assert similar == sorted(similar, reverse=True)


def test_a_part_says_the_same_alone(made: dict[str, str]) -> None:
    both = explained(made["mixture"], "beta because of", None, "cause", 2, "cpu")
    for name, part in zip(("linear", "static"), both["parts"], strict=True):
        (alone,) = explained(made[name], "beta because of", None, "cause", 2, "cpu")["parts"]
        assert {**alone, "adds": 0} == {**part, "adds": 0}


def test_the_parts_of_a_mixture_within_a_mixture_are_explained_too(made: dict[str, str]) -> None:
    nested = mix([made["mixture"], made["linear"]], root=made["root"])
    found = explained(nested, "beta because of", None, "", 2, "cpu")
    assert sorted(part["model"] for part in found["parts"]) == ["linear", "linear", "static"]
    assert sum(part["adds"] for part in found["parts"]) == pytest.approx(found["answer"])


def test_training_texts_are_read_in_portions_that_show_progress(
    made: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = made["linear"], "alpha of beta", None, "", 5, "cpu"
    whole = explained(*asked)
    monkeypatch.setattr("tlm.evaluation.origins.explain.PORTION", 7)
    monkeypatch.setattr("tlm.progress.LOG_EVERY_SECONDS", 0.0)
    assert explained(*asked) == whole
    assert "thousand texts (100%)" in capsys.readouterr().err


def test_passages_are_those_with_the_most_telling_words(made: dict[str, str]) -> None:
    subset = subset_of(Path(made["root"]), ["no such word", "Heat and rain", "heat", "rain, rain", "heat & snow"])
    found = taught(Artifact.open(subset), {"heat": 1.0, "rain": 0.5, "snow": 2.0}, 3)
    assert [(row["doc"], row["words"]) for row in found] == [
        (4, ["snow", "heat"]),
        (1, ["heat", "rain"]),
        (2, ["heat"]),
    ]
    assert taught(Artifact.open(subset), {}, 3) == []


def test_a_model_without_a_subset_says_so_and_one_with_a_subset_shows_it(made: dict[str, str]) -> None:
    linear, vectors = (explained(made[name], "rain because of", None, "", 2, "cpu") for name in ("linear", "static"))
    assert linear["passages"] == []
    assert [note for note in linear["notes"] if "no retrieved text" in note]
    assert vectors["notes"] == []
    assert all({"because", "of"} & set(row["words"]) for row in vectors["passages"])


def test_telling_words_are_words_of_the_text_that_speak_for_the_answer() -> None:
    found = exact(shallow("static", "marked"), "Hitze << beta >> ist [[ alpha ]]", None, 2)
    told = telling(found, "Hitze << beta >> ist [[ alpha ]]")
    assert told.keys() <= {"hitze", "beta", "ist", "alpha"}
    assert all(value > 0 for value in told.values())
    assert told["ist"] == pytest.approx(
        sum(value for name, value in found.features.items() if name.rpartition(": ")[2] == "ist")
    )


def test_a_left_out_word_that_decides_weighs_most(tmp_path: Path) -> None:
    model = shallow("baseline", "plain")
    model.write(tmp_path / "model")
    found = left_out(ShallowPredictor(tmp_path / "model"), "alpha because of beta", None, 0)
    assert found.bias is None
    assert set(found.features) == {"alpha", "because", "of", "beta"}
    assert set(list(found.features)[:2]) == {"because", "of"}
    chances = model.predict(["alpha because of beta", "alpha of beta".replace("  ", " ")])[:, 0]
    assert found.features["because"] == pytest.approx(chances[0] - chances[1])


def test_words_of_both_texts_of_a_pair_are_left_out(tmp_path: Path) -> None:
    model = shallow("baseline", "pairs")
    model.write(tmp_path / "model")
    found = left_out(ShallowPredictor(tmp_path / "model"), "alpha beta", "because of gamma", 0)
    assert set(found.features) == {"alpha", "beta", "because", "of", "gamma"}
    chances = model.predict(["alpha beta"] * 2, ["because of gamma", " of gamma"])[:, 0]
    assert found.features["because"] == pytest.approx(chances[0] - chances[1])


@pytest.mark.parametrize("architecture", ["bert", "modernbert"])
def test_gradients_are_finite_and_a_planted_word_points_to_its_class(tmp_path: Path, architecture: str) -> None:
    import torch

    from tlm.evaluation.predict.classifier import Classifier

    rows: list[Row] = [(text, None, "nyo"[place % 3], "train") for place, text in enumerate(words(21, 0))]
    task = make_task(tmp_path, rows, "accuracy", ["n", "y", "o"])
    uri = random_model(tmp_path, task, ["alpha beta gamma delta epsilon zeta eta theta"] * 20, architecture)[1]
    classifier = Classifier(Artifact.open(uri).path("model"), "cpu")
    chance, others = random.Random(0), ["gamma", "delta", "eta", "theta"]
    planted = ["alpha", "beta", "zeta"] * 8
    texts = [f"{' '.join(chance.choices(others, k=2))} {word} {chance.choice(others)}" for word in planted]
    batch = classifier.tokenizer(texts, padding=True, return_tensors="pt")
    steps = torch.optim.Adam(classifier.model.parameters(), lr=2e-3)
    for _ in range(60):
        steps.zero_grad()
        classifier.model(**batch, labels=torch.tensor([0, 1, 2] * 8)).loss.backward()
        steps.step()
    for word, place in (("alpha", 0), ("beta", 1)):
        found = gradient(classifier, f"gamma {word} delta", None, place)
        assert found.features.keys() == {word, "gamma", "delta"}
        assert np.isfinite(list(found.features.values())).all()
        assert found.features[word] > 0 > gradient(classifier, f"gamma {word} delta", None, 1 - place).features[word]
        assert found.bias is None
        assert "not exact" in found.method
        assert telling(found, f"gamma {word} delta")[word] > 0


def test_tokens_are_shown_as_text_even_if_they_are_bytes() -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bytes_of = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = {token: number for number, token in enumerate([*bytes_of, "Ġa", "ab", "Ġab"])}
    tokenizer = Tokenizer(models.BPE(known, [("Ġ", "a"), ("a", "b"), ("Ġa", "b")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    for text, shown in (
        ("ab ab漢字 éa", ["ab", "ab", "漢", "字", "␣", "é", "a"]),
        ("a😀a", ["a", "😀", "a"]),
    ):
        ids = fast(text)["input_ids"]
        found = list(characters(fast, ids, [1.0] * len(ids)))
        assert [name for name, _ in found] == shown
        assert sum(value for _, value in found) == len(ids)
    ids = fast("\ufffd" * 3)["input_ids"]  # what else says that bytes are missing
    assert sum(value for _, value in characters(fast, ids, [1.0] * len(ids))) == len(ids)
    assert [value for _, value in characters(fast, fast("字")["input_ids"][:2], [1.0, 2.0])] == [3.0]


def test_spaces_tell_features_of_letters_apart() -> None:
    part = {
        "model": "linear",
        "adds": 1.0,
        "bias": 0.5,
        "method": "exact",
        "features": {"letters:  who": 2.0, "who is": 1.0},
    }
    found = {
        "label": "a",
        "answer": 1.0,
        "text": "t",
        "pair": None,
        "parts": [part],
        "nearest": [],
        "passages": [],
        "notes": [],
    }
    said = terminal(blocks(found, 2), styled=False)
    assert "letters: ␣who" in said
    assert "who is" in said


def test_an_encoder_shows_training_texts_and_a_folder_shows_none(tmp_path: Path) -> None:
    texts = words(12, 1)
    task = make_task(
        tmp_path, [(text, None, "ny"[n % 2], "train") for n, text in enumerate(texts)], "accuracy", ["n", "y"]
    )
    uri = random_model(tmp_path, task, texts, "modernbert")[1]
    found = explained(uri, texts[3], None, "", 2, "cpu")
    assert found["nearest"][0]["text"] == texts[3]
    assert found["nearest"][0]["similarity"] == pytest.approx(1, abs=1e-6)
    folder = download(uri, str(tmp_path / "folder"))
    alone = explained(folder, texts[3], None, "", 2, "cpu")
    assert alone["parts"] == found["parts"]
    assert (alone["nearest"], alone["passages"], len(alone["notes"])) == ([], [], 1)
    assert refused(explain, folder, texts[3], device="tpu").startswith("device 'tpu' is unknown")


def test_the_command_prints_for_people_and_for_programs(made: dict[str, str]) -> None:
    answer = explain(made["mixture"], "rain because of", top=2)
    facts = json.loads(json.dumps(answer.facts, allow_nan=False))
    assert facts["label"] in answer
    for part in facts["parts"]:
        total = part["bias"] + sum(part["features"].values())
        assert f"{total:+.4g}" in answer
        words, rest = " ".join(answer.split()), sum([*part["features"].values()][2:])
        assert part["method"] in words
        assert f"all others {rest:+.4g} " in words
    assert (len(facts["nearest"]), len(facts["passages"])) == (2, 2)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"label": "caus"}, "no class 'caus'; did you mean 'cause'?"),
        ({"top": 0}, "top is 0"),
        ({"text": " "}, "0 words"),
    ],
)
def test_what_cannot_be_explained_is_said(made: dict[str, str], values: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        explain(**{"model": made["linear"], "text": "rain", **values})  # type: ignore[arg-type]
    assert sentence in str(caught.value)
