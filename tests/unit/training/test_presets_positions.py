"""Models with more positions than texts are long, and with one token type, as RoBERTa has them."""

import json

import numpy as np
import pytest
import torch

from tests.toys_training import checkpoint, rows, task
from tlm.evaluation.predict.classifier import Classifier
from tlm.training.classification import masked_lm_loss
from tlm.training.device import to_device
from tlm.training.input.batches import collate
from tlm.training.input.texts import Examples
from tlm.training.model import build

BERT = ("model.architecture=bert", "model.max_length=16", "train.external_length=24", "train.steps=4")


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    return root, task(root, rows(pair=True))


def test_texts_are_cut_at_their_length_not_at_the_last_position(examples):
    root, pairs = examples
    start = checkpoint(root, pairs, *BERT, "model.positions=40", "model.token_types=1")
    folder = start.path("model")
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    assert (config["max_position_embeddings"], config["type_vocab_size"]) == (40, 1)
    assert tokenizer["model_max_length"] == build.text_length(config) == 16
    assert "token_type_ids" not in tokenizer["model_input_names"]
    assert Classifier(folder, "cpu").max_length == 16
    assert np.isfinite(masked_lm_loss(start, start.input("task"), "test", "cpu"))


def test_one_token_type_gives_pairs_the_logits_that_transformers_gives(examples):
    root, pairs = examples
    start = checkpoint(root, pairs, *BERT, "model.positions=40", "model.token_types=1")
    opened = Examples.open(start.input("task"), start.input("task_tokens"), 16)
    batch = collate(opened.texts, np.arange(12))
    assert batch.types is not None
    assert batch.types.any()
    ours = build.load(start.path("model")).eval()
    from transformers import AutoModelForSequenceClassification

    theirs = AutoModelForSequenceClassification.from_pretrained(start.path("model")).eval()
    inputs = to_device(batch, torch.device("cpu"))
    with torch.no_grad():
        _, logits = ours(inputs, inputs.ids, tokens=False, classes=True)
        mask = torch.arange(batch.ids.shape[1]) < inputs.lengths[:, None]
        reference = theirs(input_ids=inputs.ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(logits, reference, atol=1e-5, rtol=1e-4)


def test_without_positions_of_its_own_nothing_is_different(examples):
    root, pairs = examples
    start = checkpoint(root, pairs, *BERT[:2], "train.external_length=16", "train.steps=4")
    config = json.loads((start.path("model") / "config.json").read_text())
    assert config["max_position_embeddings"] == build.text_length(config) == 16
    assert build.text_length({"max_position_embeddings": 99}) == 99  # models from elsewhere
