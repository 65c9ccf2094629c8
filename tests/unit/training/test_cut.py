"""Long texts whose ends are read too: training, prediction and ONNX keep the same tokens, and old models their keys."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.published import write_bert
from tests.toys import Row, make, make_task, ragged, save
from tests.toys_training import GLUE, SMALL, TOPICS, checkpoint, model, rows, task, tokenizer
from tests.unit.training.test_batches import PAD_TO_MASK, ids, library
from tlm.artifacts.artifact import Artifact
from tlm.cli.command import flat
from tlm.data.ranges import HEAD, HEAD_TAIL, skipped
from tlm.evaluation.predict.classifier import Classifier
from tlm.evaluation.predict.encoder import OnnxClassifier, tokenized
from tlm.evaluation.score.evaluate import evaluate
from tlm.serving.distill import distill
from tlm.serving.export_onnx import export_onnx
from tlm.settings.options import Compute
from tlm.training.input.batches import collate
from tlm.training.input.texts import Examples, Texts
from tlm.training.stages import load_model, train

BOTH = f"model.cut={HEAD_TAIL}"
LONGEST = 16  # tokens that the toy models read
WORDS = [*GLUE, *chain.from_iterable(TOPICS.values())]


def cut(text: list[Any], count: int) -> list[Any]:
    """The `count` items of a text that are read."""
    head = -(-count // 4)
    return text[:head] + text[len(text) - (count - head) :] if len(text) > count else text


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=6), st.integers(8, 40), st.booleans())
def test_training_and_prediction_keep_the_same_beginning_and_end(texts, max_length, pair):
    """Of a pair, as many tokens of each text as without the setting."""
    first, second = ([row[place] for row in texts] for place in (0, 1))
    of_pair = ragged(second) if pair else None
    read = Texts(ragged(first), of_pair, max_length, PAD_TO_MASK, HEAD_TAIL)
    batch = collate(read, np.arange(len(texts)))
    counts = zip(*(one.tolist() for one in read.kept(np.arange(len(texts)))), strict=True)
    expected = [
        [2, *cut(a, of_a), 3, *([*cut(b, of_b), 3] if pair else [])]
        for (a, b), (of_a, of_b) in zip(texts, counts, strict=True)
    ]
    assert [row[:length].tolist() for row, length in zip(batch.ids, batch.lengths, strict=True)] == expected
    assert batch.lengths.tolist() == Texts(ragged(first), of_pair, max_length, PAD_TO_MASK).lengths.tolist()
    assert batch.lengths.max() <= max_length
    written = [tuple(" ".join(map(str, one)) for one in row) for row in texts]
    given_texts = written if pair else [one for one, _ in written]
    found = tokenized(library(), given_texts, ["input_ids", "token_type_ids"], max_length, HEAD_TAIL)
    assert found["input_ids"] == expected
    if pair:
        assert batch.types is not None
        assert [row[: len(own)].tolist() for row, own in zip(batch.types, expected, strict=True)] == found[
            "token_type_ids"
        ]


def test_a_quarter_is_of_the_beginning_as_in_the_paper() -> None:
    places = np.arange(510) + skipped(np.array([510]), np.array([2000]), HEAD_TAIL)
    assert places.tolist() == [*range(128), *range(2000 - 382, 2000)]


def long_rows(pair: bool = False) -> list[Row]:
    """Examples whose topic is in the last words alone, behind 30 that say nothing."""
    chance = np.random.default_rng(0)
    return [
        (
            " ".join([*chance.choice(GLUE, 30), *chance.choice(TOPICS[str(gold)], 3)]),
            second and f"{second} of " * 9,
            gold,
            split,
        )
        for _, second, gold, split in rows(pair=pair)
    ]


def ends(text: str) -> str:
    """What the toy models read of a text, whose tokens are its words."""
    return " ".join(cut(text.split(), LONGEST - 2))


def subset(root: Path, texts: list[str]) -> str:
    def write(draft: Any) -> None:
        save(draft, "passages-00000.parquet", {"doc": list(range(len(texts))), "text": texts})
        draft.details.update(passages=len(texts), arm="bm25")

    return make("subset", root, write, {"of": texts[0]})


def of_weights(one: Artifact) -> str:
    (entry,) = one.entries("model/model.safetensors")
    return entry.sha256


def everything(root: Path, examples: str, words: str, passages: str, taught: str, *overrides: str) -> dict[str, Any]:
    """What both stages, a student that is `taught` with other passages, and the scores are made of."""
    shape = ["model.architecture=bert", "model.positions=64", f"model.max_length={LONGEST}", *overrides]
    shape.append("train.embeddings=random")  # other embeddings begin as vectors of the whole texts
    start = Artifact.open(
        flat(train)(examples, tokenizer=words, subset=passages, preset="tiny", overrides=[*SMALL, *shape], device="cpu")
    )
    end = model(root, start, examples, "finetune.epochs=6")
    metrics = Artifact.open(evaluate(end.uri, examples, device="cpu", root=str(root)))
    student = Artifact.open(
        distill(metrics.uri, start.uri, examples, subset=taught, preset="tiny", overrides=SMALL, compute=Compute("cpu"))
    )
    told = json.loads(metrics.path("metrics.json").read_text())
    return {
        "stage 1": of_weights(start), "stage 2": of_weights(end), "mlm loss": told["mlm_loss"],
        "predictions": pq.read_table(metrics.path("predictions.parquet"))["probabilities"].to_pylist(),
        "student": of_weights(student),
    }  # fmt: skip


def test_a_model_that_reads_both_ends_is_one_of_texts_cut_by_hand(tmp_path: Path) -> None:
    """Both stages, masked-LM loss, predictions and distillation; and without the setting all are others."""
    chance = np.random.default_rng(1)
    passages = [" ".join(chance.choice(WORDS, 40)) for _ in range(60)]
    by_hand, whole = task(tmp_path, [(ends(text), *rest) for text, *rest in long_rows()]), task(tmp_path, long_rows())
    words, own, other = tokenizer(tmp_path, whole), subset(tmp_path, passages), subset(tmp_path, [*map(ends, passages)])
    both = everything(tmp_path, whole, words, own, own, BOTH)
    assert both == everything(tmp_path, by_hand, words, own, other)  # in which nothing is cut
    head = everything(tmp_path, whole, words, own, own)
    assert {name for name in both if both[name] == head[name]} == set()


@pytest.fixture(scope="module", params=["modernbert", "pairs"])
def both_ends(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Path]:
    """A model that reads both ends, and its ONNX's folder."""
    root, pair = tmp_path_factory.mktemp("both"), request.param == "pairs"
    labelled = task(root, long_rows(pair))
    bert = ["model.architecture=bert", "model.positions=48", "model.token_types=2"]
    shape = bert if pair else [f"train.external_length={LONGEST}"]
    end = model(root, checkpoint(root, labelled, *shape, f"model.max_length={LONGEST}", BOTH), labelled)
    return end, Artifact.open(export_onnx(end.uri, root=str(root))).path("model")


def test_torch_and_onnx_read_what_training_read_one_by_one_as_together(both_ends: tuple[Artifact, Path]) -> None:
    end, onnx = both_ends
    examples = Examples.open(end.input("task"), end.input("task_tokens"), LONGEST, HEAD_TAIL)
    batch = collate(examples.texts, np.arange(len(long_rows())))
    expected = [row[:length].tolist() for row, length in zip(batch.ids, batch.lengths, strict=True)]
    texts, seconds = [row[0] for row in long_rows(True)], [str(row[1]) for row in long_rows(True)]
    pairs = seconds if end.input("task").details["pair"] else None
    torch, other = Classifier(end.path("model"), "cpu"), OnnxClassifier(onnx, "model.onnx")
    for one in (torch, other):
        assert one.read(texts, pairs)["input_ids"] == expected
    logits = torch.logits(texts, pairs)
    assert np.abs(other.logits(texts, pairs) - logits).max() <= 1e-4
    alone = [torch.logits([text], pairs and [seconds[row]])[0] for row, text in enumerate(texts[:9])]
    assert np.abs(np.array(alone) - logits[:9]).max() <= 1e-5


def test_the_model_card_says_how_long_texts_are_cut(both_ends: tuple[Artifact, Path]) -> None:
    assert "a\nquarter of its share of the tokens" in (both_ends[0].path("model") / "README.md").read_text()


def test_names_and_labels_cannot_act_in_the_model_card(tmp_path: Path) -> None:
    label = "a` ![x](https://evil.example/x) <img src=x>\u202e `"
    named = [(*one[:2], f"{label}{one[2]}", one[3]) for one in rows()]
    labelled = make_task(
        tmp_path, named, "macro_f1", sorted(f"{label}{topic}" for topic in TOPICS), name="t <b> [l](x)"
    )
    card = (model(tmp_path, checkpoint(tmp_path, labelled), labelled).path("model") / "README.md").read_text()
    assert "`a' ![x](https://evil.example/x) <img src=x>\\u202e '" in card
    assert "# t \\<b\\> \\[l\\](x)\n" in card


def test_heads_keep_keys_and_files(tmp_path: Path) -> None:
    labelled = task(tmp_path)
    plain, named, both = (checkpoint(tmp_path, labelled, *given) for given in ([], [f"model.cut={HEAD}"], [BOTH]))
    assert plain.uri == named.uri != both.uri
    assert "cut" not in plain.manifest.settings["model"]
    config = [json.loads((one.path("model") / "config.json").read_text()) for one in (plain, both)]
    assert [one.get("tlm_cut") for one in config] == [None, HEAD_TAIL]
    assert "are cut.\n" in (model(tmp_path, plain, labelled).path("model") / "README.md").read_text()


def test_a_published_model_reads_both_ends_in_both_stages(tmp_path: Path) -> None:
    labelled = task(tmp_path)
    write_bert(tmp_path / "bert", WORDS)
    given = {"preset": "tiny", "root": str(tmp_path)}
    start = load_model(str(tmp_path / "bert"), labelled, overrides=[BOTH], **given)
    further = train(labelled, start=start, overrides=SMALL, **given)
    for one in map(Artifact.open, (start, further)):
        assert one.manifest.settings["model"]["cut"] == HEAD_TAIL
        assert Classifier(one.path("model"), "cpu").cut == HEAD_TAIL
