"""Models made from settings, written to folders that `transformers` loads, and read back."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tlm.settings import Model
from tlm.training.input.texts import Special
from tlm.training.model import bert, modernbert
from tlm.training.model.architectures import OWN
from tlm.training.model.bert import BertBody, bert_config, bert_dropout
from tlm.training.model.encoder import Body, Encoder
from tlm.training.model.modernbert import ModernBertBody, modernbert_config, modernbert_dropout
from tlm.training.model.tensors import read_tensors, write_tensors

MLM_HEAD = "mlm_head.safetensors"
HEADS = "heads.safetensors"  # where stage 1 was for several tasks
WEIGHTS, CONFIG = "model.safetensors", "config.json"
TEXT_LENGTH = "tlm_text_length"  # in config.json: where task texts are cut; the model may have more positions

_BODIES: dict[str, Any] = {"bert": BertBody, "modernbert": ModernBertBody}
_FIXED: dict[str, dict[str, Any]] = {"bert": bert.FIXED, "modernbert": modernbert.FIXED}
_CONFIGS = {"bert": bert_config, "modernbert": modernbert_config}
_DROPOUTS = {"bert": bert_dropout, "modernbert": modernbert_dropout}


def make_config(model: Model, vocab_size: int, special: Special, labels: list[str] | None, name: str) -> dict[str, Any]:
    """The config.json of a model for a task (`labels`, `name`: see `with_task`)."""
    config = {
        **_shape(model, vocab_size, special),
        TEXT_LENGTH: model.max_length,
        "pad_token_id": special.pad,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": "float32",
    }
    return with_task(with_dropout(config, model.dropout), labels, name)


def _shape(model: Model, vocab_size: int, special: Special) -> dict[str, Any]:
    if model.architecture in OWN:
        return _CONFIGS[model.architecture](model, vocab_size)
    from tlm.training.model.foreign import foreign_config

    return foreign_config(model, vocab_size, special.pad)


def is_ours(config: dict[str, Any]) -> bool:
    """Whether a config.json is of an encoder that is written out here; the others need `transformers`' modules."""
    fixed = _FIXED.get(config["model_type"])
    plain = fixed is not None and all(config.get(name, value) == value for name, value in fixed.items())
    return plain and "sliding_attention" not in config.get("layer_types", ())


def with_task(config: dict[str, Any], labels: list[str] | None, name: str) -> dict[str, Any]:
    """`config` for a task: its classes in order (None is regression: one number) and its name."""
    known = labels if labels is not None else ["value"]
    return {
        **config,
        "id2label": {str(place): label for place, label in enumerate(known)},
        "label2id": {label: place for place, label in enumerate(known)},
        "problem_type": "regression" if labels is None else "single_label_classification",
        "finetuning_task": name,
    }


def with_dropout(config: dict[str, Any], share: float) -> dict[str, Any]:
    """`config` with all its dropouts set."""
    if is_ours(config):
        return {**config, **_DROPOUTS[config["model_type"]](share)}
    from tlm.training.model.foreign import foreign_dropout

    return {**config, **foreign_dropout(config, share)}


def text_length(config: dict[str, Any]) -> int:
    """Where task texts are cut, in tokens with special tokens."""
    return int(config.get(TEXT_LENGTH, config["max_position_embeddings"]))


def build(config: dict[str, Any], seed: int) -> Encoder:
    """A model with fresh weights, the same for the same seed; torch's global generator is left as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Encoder(_body(config))


def _body(config: dict[str, Any]) -> Body:
    if is_ours(config):
        return _BODIES[config["model_type"]](config)  # type: ignore[no-any-return]
    from tlm.training.model.foreign import ForeignBody

    return ForeignBody(config)


def load_config(folder: Path) -> dict[str, Any]:
    """The config of a model folder."""
    config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return config


def load(folder: Path, mlm_head: Path | None = None) -> Encoder:
    """The model in `folder`, and its MLM head where its file is given; else that head is fresh."""
    model = build(load_config(folder), seed=0)
    load_weights(model, folder)
    if mlm_head is not None:
        load_mlm_head(model, mlm_head)
    return model


def load_mlm_head(model: Encoder, file: Path) -> None:
    """Give `model` the head that predicts tokens in `file`."""
    model.mlm.load_state_dict(read_tensors(file))


def load_weights(model: Encoder, folder: Path) -> None:
    """Give `model` all weights in `folder`."""
    model.body.load_state_dict(read_tensors(folder / WEIGHTS))


def load_encoder(model: Encoder, folder: Path) -> None:
    """Give `model` the weights in `folder`, but keep its own classification head (whose classes may be others)."""
    head = model.body.head_names
    own = {name: value for name, value in model.body.state_dict().items() if name.startswith(head)}
    stored = {name: value for name, value in read_tensors(folder / WEIGHTS).items() if not name.startswith(head)}
    model.body.load_state_dict({**stored, **own})


def parameter_count(model: Encoder) -> int:
    """Parameters of the exported model."""
    return sum(parameter.numel() for parameter in model.body.parameters())


def save(model: Encoder, folder: Path, tokenizer: Path) -> None:
    """Write the model folder: config, weights, and the tokenizer with the model's length and inputs."""
    folder.mkdir(parents=True)
    config = model.body.config
    _write_json(folder / CONFIG, config)
    write_tensors(model.body.state_dict(), folder / WEIGHTS)
    shutil.copyfile(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    settings = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["model_max_length"] = text_length(config)
    types = ["token_type_ids"] if config.get("type_vocab_size", 1) > 1 else []
    settings["model_input_names"] = ["input_ids", *types, "attention_mask"]
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def save_mlm_head(model: Encoder, path: Path) -> None:
    """Write the head that predicts tokens; the embedding matrix it shares is in the model folder."""
    write_tensors(model.mlm.state_dict(), path)


def save_heads(models: Sequence[Encoder], path: Path) -> None:
    """Write the classification heads of several tasks' models, as ``<place>.<name>``."""
    heads = {
        f"{place}.{name}": value
        for place, model in enumerate(models)
        for name, value in model.body.state_dict().items()
        if name.startswith(model.body.head_names)
    }
    write_tensors(heads, path)


def load_head(model: Encoder, path: Path, place: int) -> None:
    """Give `model` the head that `save_heads` wrote for the model at `place`."""
    stored = read_tensors(path)
    names = [name for name in model.body.state_dict() if name.startswith(model.body.head_names)]
    model.body.load_state_dict({name: stored[f"{place}.{name}"] for name in names}, strict=False)
