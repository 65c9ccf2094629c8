"""Published models: taken over weight by weight, with their own tokenizers, and trained on."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    CONFIG_MAPPING,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tests.published import SHAPE, write_bert, write_roberta
from tests.toys_training import GLUE, TOPICS, model, passages, rows, task, tokenizer
from tlm.artifacts.artifact import Artifact
from tlm.errors import InputError
from tlm.settings.options import Compute
from tlm.training.classification import masked_lm_loss
from tlm.training.device import to_device
from tlm.training.input.batches import MASK, Masking, collate, generator
from tlm.training.input.located import names_of
from tlm.training.input.texts import Examples, Ragged
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import build_tokenizer
from tlm.training.model import build
from tlm.training.stages import load_model, train

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CPU = torch.device("cpu")
WORDS = [*GLUE, *(word for words in TOPICS.values() for word in words)]
STEPS = ["train.steps=6", "train.warmup_steps=1", "train.rho1=1", "train.lr=1e-3"]
OTHERS = {
    "bert of another kind": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6},
    "bert with a matrix of its own for predictions": {"tie_word_embeddings": False},
}
KINDS = pytest.mark.parametrize("kind", ["bert", "roberta", *OTHERS])


def published(folder: Path, kind: str) -> PreTrainedModel:
    if kind == "roberta":
        return write_roberta(folder, [row[0] for row in rows()])
    return write_bert(folder, WORDS, **OTHERS.get(kind, {}))


def loaded(root: Path, kind: str = "bert", pair: bool = False, **settings: object) -> Artifact:
    """The checkpoint of a published model that lies in ``root/kind``."""
    if not (root / kind).exists():
        published(root / kind, kind)
    examples = task(root, [(text * 4, second, *rest) for text, second, *rest in rows(pair=pair)])  # some to be cut
    return Artifact.open(load_model(str(root / kind), examples, preset="tiny", root=str(root), **settings))


def trained(root: Path, start: Artifact, *overrides: str, subset: str = "", **settings: object) -> Artifact:
    more = {
        "preset": "tiny",
        "compute": Compute("cpu"),
        "root": str(root),
        "overrides": [*STEPS, *overrides],
        **settings,
    }
    return Artifact.open(train(start.input("task").uri, subset=subset, start=start.uri, **more))


def read(checkpoint: Artifact) -> tuple[Examples, build.Encoder]:
    its = build.load(checkpoint.path("model"), checkpoint.path(build.MLM_HEAD)).eval()
    examples = Examples.open(
        checkpoint.input("task"), checkpoint.input("task_tokens"), build.text_length(its.body.config)
    )
    return examples, its


def encoded(words: PreTrainedTokenizerBase, pair: bool, count: int) -> dict[str, torch.Tensor]:
    texts = [row[0] * 4 for row in rows(pair=pair)[:count]]
    second = [row[1] for row in rows(pair=pair)[:count]] if pair else None
    return words(texts, second, truncation=True, max_length=48, padding=True, return_tensors="pt")


@KINDS
@pytest.mark.parametrize("pair", [False, True], ids=["single", "pair"])
@torch.no_grad()
def test_it_reads_texts_and_predicts_words_as_transformers_does(tmp_path, kind, pair):
    """Batches are the library's ids, cut alike; states and logits of words are the library's."""
    start = loaded(tmp_path, kind, pair)
    examples, ours = read(start)
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / kind).eval()
    words = AutoTokenizer.from_pretrained(tmp_path / kind)
    batch = collate(examples.texts, np.arange(12))
    wanted = encoded(words, pair, 12)
    assert batch.ids.tolist() == wanted["input_ids"].tolist()
    assert batch.lengths.tolist() == wanted["attention_mask"].sum(1).tolist()
    assert batch.lengths.max() == 48 > batch.lengths.min()
    special = examples.texts.special
    masked = Masking(0.3, len(words), special)(batch, generator(0, MASK, 0))
    inputs = to_device(masked, CPU)
    found, _ = ours(inputs, inputs.corrupted, tokens=True, classes=False)
    logits = theirs(**{**wanted, "input_ids": inputs.corrupted}).logits.flatten(0, 1)
    assert (found - logits[inputs.positions]).abs().max() < 1e-4
    assert logits.std() > 0.5
    assert build.is_ours(ours.body.config) == (kind == "bert")


@KINDS
@torch.no_grad()
def test_the_folder_is_a_classifier_on_the_published_encoder(tmp_path, kind):
    start = loaded(tmp_path, kind, pair=True)
    classifier = AutoModelForSequenceClassification.from_pretrained(start.path("model")).eval()
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path / kind).eval()
    words = AutoTokenizer.from_pretrained(start.path("model"))
    wanted = encoded(AutoTokenizer.from_pretrained(tmp_path / kind), True, 9)
    given = encoded(words, True, 9)
    assert {name: value.tolist() for name, value in given.items()} == {
        name: value.tolist() for name, value in wanted.items()
    }
    states = [one.base_model(**given)[0] for one in (classifier, plain)]
    assert (states[0] - states[1]).abs().max() < 1e-4
    examples, ours = read(start)
    inputs = to_device(collate(examples.texts, np.arange(9)), CPU)
    _, logits = ours(inputs, inputs.ids, tokens=False, classes=True)
    assert (logits - classifier(**given).logits).abs().max() < 1e-4
    assert [classifier.config.id2label[place] for place in range(3)] == sorted(TOPICS)


def test_where_it_lies_does_not_matter_but_what_is_in_it(tmp_path):
    first = loaded(tmp_path)
    shutil.move(tmp_path / "bert", tmp_path / "elsewhere" / "bert")
    assert Artifact.open(load_model(str(tmp_path / "elsewhere/bert/"), first.input("task").uri, preset="tiny",
                                    root=str(tmp_path))).uri == first.uri  # fmt: skip
    published(tmp_path / "bert", "bert of another kind")
    assert loaded(tmp_path).uri != first.uri
    assert first.details["name"] == "bert"
    assert first.details["parameters"] == sum(value.numel() for value in load_file(
        first.path("model") / "model.safetensors").values())  # fmt: skip
    assert set(first.details["cost"].values()) == {0}


def test_a_bare_word_list_does_too(tmp_path):
    first, folder = loaded(tmp_path), tmp_path / "old" / "bert"
    shutil.copytree(tmp_path / "bert", folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    second = Artifact.open(load_model(str(folder), first.input("task").uri, preset="tiny", root=str(tmp_path)))
    one, two = (load_file(each.path("model") / "model.safetensors") for each in (first, second))
    assert all(torch.equal(one[name], two[name]) for name in one)
    ids = [each.input("task_tokens").path("ids.npy").read_bytes() for each in (first, second)]
    assert ids[0] == ids[1]


def test_without_a_head_for_words_there_is_no_loss_of_words(tmp_path):
    whole = published(tmp_path / "bert", "bert")
    whole.bert.save_pretrained(tmp_path / "bert")
    start = loaded(tmp_path)
    assert not start.entries(build.MLM_HEAD)
    assert masked_lm_loss(start, start.input("task"), "test", "cpu") is None
    assert trained(tmp_path, start).entries(build.MLM_HEAD)


@pytest.mark.parametrize("kind", ["bert", "bert of another kind"])
def test_without_such_a_head_stage_1_begins_with_the_identity_and_the_frequencies_of_tokens(tmp_path, kind, capsys):
    """Its bias is log p of the texts that are trained on, and its states are those of the model, normalised."""
    published(tmp_path / kind, kind).bert.save_pretrained(tmp_path / kind)
    start, text = loaded(tmp_path, kind), passages(tmp_path, "subset")
    begun = trained(tmp_path, start, "train.lr=1e-12", subset=text)
    assert begun.manifest.settings["mlm_head"] == "identity"
    warned = "no head that predicts tokens, so stage 1 begins with a random one" in capsys.readouterr().err
    assert warned == (kind != "bert")
    if warned:
        return
    model = build.load(begun.path("model"), begun.path(build.MLM_HEAD))
    words, size = start.input("task_tokens").input("tokenizer").uri, len(model.mlm.bias)
    task_ids, ids = (
        Ragged.open(Artifact.open(tokenize(uri, words, root=str(tmp_path)))) for uri in (start.input("task").uri, text)
    )
    counts = np.bincount(np.concatenate([task_ids.ids[: task_ids.offsets[48]], ids.ids]), minlength=size) + 1
    assert np.allclose(model.mlm.bias.detach().exp(), counts / counts.sum(), rtol=1e-4)
    states = torch.randn(50, 32, generator=torch.Generator().manual_seed(0))
    exact = torch.nn.functional.layer_norm(states, (32,))
    near = torch.nn.functional.cosine_similarity(model.mlm.transform(states), exact)
    assert near.min() > 0.98
    assert not trained(tmp_path, begun).manifest.settings.get("mlm_head")


@KINDS
def test_stage_1_goes_on_from_it_and_stage_2_after_that(tmp_path, kind):
    start = loaded(tmp_path, kind)
    alone, with_text = trained(tmp_path, start), trained(tmp_path, start, subset=passages(tmp_path, "subset"))
    assert [one.details["arm"] for one in (start, alone, with_text)] == [
        "published",
        "published-task-only",
        "published-bm25",
    ]
    assert alone.manifest.settings["model"] == start.manifest.settings["model"]
    before, after = (load_file(one.path("model") / "model.safetensors") for one in (start, with_text))
    moved = {name: (after[name] - before[name]).abs().mean() for name in before if "embeddings.weight" in name}
    assert all(0 < float(change) < 0.05 for change in moved.values())  # near where it began, whatever the seed
    told = [masked_lm_loss(one, start.input("task"), "test", "cpu") for one in (start, with_text)]
    assert told[1] < told[0]
    end = model(tmp_path, with_text, start.input("task").uri, seed=3)
    assert AutoModelForSequenceClassification.from_pretrained(end.path("model")).config.num_labels == 3
    assert "published" in (end.path("model") / "README.md").read_text()


def test_arms_of_the_pipelines_have_the_model_s_name(tmp_path):
    start = loaded(tmp_path, arm="published-bert")
    further = [trained(tmp_path, start), trained(tmp_path, start, subset=passages(tmp_path, "subset", arm="dsir"))]
    said = []
    for checkpoint in (start, *further):
        end = model(tmp_path, checkpoint, start.input("task").uri, seed=3)
        card = (end.path("model") / "README.md").read_text()
        said.append((end.details["arm"], *re.findall(r"^- passages: (.*)$", card, re.MULTILINE)))
        assert "What its pre-training cost is not counted here." in card
        assert ("with more text (stage 1)" in card) == (checkpoint is not start)
    dsir = "drawn from the corpus so that their words are distributed as the training texts' (DSIR)"
    assert said == [
        ("published-bert", "none beside those of the published model"),
        ("published-bert-task-only", "none beside those of the published model and, in stage 1, the task's own"),
        ("published-bert-dsir", f"those of the published model and, in stage 1, passages {dsir}"),
    ]


def test_words_alone_are_learned_where_rho2_is_infinite(tmp_path):
    start = loaded(tmp_path)
    words = trained(tmp_path, start, "train.rho2=inf")
    curve = pq.read_table(words.path("curve.parquet")).to_pydict()
    assert set(curve["ce"]) == {None}
    assert min(curve["mlm"]) > 0
    classifier = [load_file(one.path("model") / "model.safetensors")["classifier.weight"] for one in (start, words)]
    assert torch.equal(*classifier)  # fresh by the same seed, and never changed
    both = trained(tmp_path, start)
    assert words.details["cost"]["flops"] < both.details["cost"]["flops"]


def test_a_rate_for_fresh_weights_is_warned_of(tmp_path, capsys):
    start, warning = loaded(tmp_path), "with which a published model forgets what it knows; it takes 2e-5"
    onward = trained(tmp_path, start, "train.lr=5e-4")
    model(tmp_path, onward, start.input("task").uri, "finetune.lr=5e-4")
    assert warning not in capsys.readouterr().err
    trained(tmp_path, start, "train.lr=6e-4")
    assert f"warning: train.lr is 0.0006, {warning}" in capsys.readouterr().err
    model(tmp_path, onward, start.input("task").uri, "finetune.lr=1e-3")
    assert f"warning: finetune.lr is 0.001, {warning}" in capsys.readouterr().err
    fresh = train(start.input("task").uri, tokenizer=start.input("task_tokens").input("tokenizer").uri, preset="tiny",
                  compute=Compute("cpu"), overrides=[*STEPS], root=str(tmp_path))  # fmt: skip
    model(tmp_path, Artifact.open(fresh), start.input("task").uri, "finetune.lr=1e-3")
    assert warning not in capsys.readouterr().err


def test_without_a_start_the_recipe_has_nothing_new(tmp_path):
    examples = task(tmp_path)
    uri = train(examples, tokenizer=tokenizer(tmp_path, examples), preset="tiny", compute=Compute("cpu"),
                overrides=["train.steps=2", "train.warmup_steps=1"], root=str(tmp_path))  # fmt: skip
    manifest = Artifact.open(uri).manifest
    assert set(manifest.inputs) == {"task", "task_tokens"}
    assert set(manifest.settings) == {"arm", "seed", "model", "train"}


def test_a_tokenizer_is_adopted_from_such_a_folder_too(tmp_path):
    start = loaded(tmp_path, "roberta")
    corpus, examples = passages(tmp_path, "corpus"), start.input("task").uri
    uri = build_tokenizer(corpus, examples, existing=str(tmp_path / "roberta"), root=str(tmp_path))
    made = start.input("task_tokens").input("tokenizer")
    assert uri == made.uri
    assert made.details["between"] == 2


def test_a_name_on_the_hub_is_found_in_its_cache_without_a_network(tmp_path, monkeypatch):
    """The library's own client, with its own cache of models that were fetched before."""
    hub, cache = tmp_path / "cache", "models--owner--bert"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    first = loaded(tmp_path)
    shutil.copytree(tmp_path / "bert", hub / cache / "snapshots" / COMMIT)
    (hub / cache / "refs").mkdir()
    (hub / cache / "refs" / "main").write_text(COMMIT)
    found = load_model("owner/bert", first.input("task").uri, preset="tiny", root=str(tmp_path))
    assert found == first.uri
    assert {"config.json", "model.safetensors"} <= {*names_of("owner/bert")}


# ---- what is refused


def test_another_tokenizer_is_refused(tmp_path):
    start = loaded(tmp_path)
    examples = start.input("task").uri
    with pytest.raises(InputError, match=r"was made with another tokenizer than .*; give none"):
        train(examples, tokenizer=tokenizer(tmp_path, examples), start=start.uri, preset="tiny", root=str(tmp_path))
    with pytest.raises(InputError, match="no tokenizer is given"):
        train(examples, preset="tiny", root=str(tmp_path))


def test_texts_longer_than_it_reads_are_refused(tmp_path):
    for kind in ("bert", "roberta"):
        assert loaded(tmp_path, kind, overrides=["model.max_length=64", "train.external_length=64"])
        with pytest.raises(InputError, match=r"model.max_length is 65 and model.positions 64"):
            loaded(tmp_path, kind, overrides=["model.max_length=65", "train.external_length=64"])
    start = loaded(tmp_path)
    with pytest.raises(InputError, match=r"train.external_length is 65 and .* has 64 positions"):
        trained(tmp_path, start, "train.external_length=65", "model.max_length=65")


def damaged(folder: Path, what: str) -> None:
    published(folder, "bert")
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    if what == "config":
        (folder / "config.json").unlink()
    elif what == "weights":
        (folder / "model.safetensors").unlink()
    elif what == "type":
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    elif what == "seq2seq":
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "bart"}))
    elif what == "null":
        (folder / "config.json").write_text("null")
    elif what == "heads":
        (folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": 0}))
    elif what == "layer":
        kept = {name: value for name, value in weights.items() if "layer.1." not in name}
        save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    elif what == "place":
        index = {"weight_map": dict.fromkeys(weights, "../elsewhere.safetensors")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    elif what == "index":
        (folder / "model.safetensors.index.json").write_text("[]")
    elif what == "cut":
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    elif what == "vocabulary":
        written = json.loads((folder / "tokenizer.json").read_text())
        written["model"]["vocab"]["unheard"] = len(written["model"]["vocab"])
        (folder / "tokenizer.json").write_text(json.dumps(written))


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("config", "has no config.json, or no weights"),
        ("weights", "has no config.json, or no weights"),
        ("place", r"its index names '../elsewhere.safetensors', which is not in the folder; download the model again"),
        ("index", r"model.safetensors.index.json is not an index of weights; download"),
        ("type", "is a 'gpt2', no encoder that predicts words and classes"),
        ("seq2seq", "is no encoder of a known form .*; take another model"),
        ("null", "config.json does not load: .*; expected an encoder of transformers"),
        ("heads", "is no encoder of a known form .*; take another model"),
        ("layer", "lacks weights .bert.encoder.layer.1."),
        ("cut", "does not load: .*; download the model again"),
        ("vocabulary", r"its tokenizer has \d+ entries and the padding id 0, its config.json \d+ and 0"),
    ],
)
def test_what_is_no_whole_model_is_refused(tmp_path, what, sentence):
    damaged(tmp_path / "bert", what)
    with pytest.raises(InputError, match=sentence) as error:
        loaded(tmp_path)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.glob("checkpoint/*/manifest.json"))


@pytest.mark.parametrize(("kind", "cause"), [("xmod", "language unknown"), ("longformer", "global_attentions")])
def test_an_encoder_that_needs_more_than_texts_is_refused_before_it_is_trained(tmp_path, kind, cause):
    size = published(tmp_path / kind, "bert").config.vocab_size
    config = CONFIG_MAPPING[kind](**SHAPE, vocab_size=size, pad_token_id=0)
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / kind)
    with pytest.raises(InputError, match=f"'{kind}' that does not work as an encoder here .*{cause}.*take another"):
        loaded(tmp_path, kind)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("./nowhere", "./nowhere: there is no such folder; expected a model as transformers writes it"),
        ("bert-base-uncased", "the Hugging Face Hub cannot be reached .*hf download bert-base-uncased --local-dir"),
    ],
)
def test_what_is_not_here_is_said(tmp_path, monkeypatch, place, sentence):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(InputError, match=sentence):
        load_model(place, task(tmp_path), preset="tiny", root=str(tmp_path))
