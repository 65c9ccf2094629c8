"""Models made from settings, written to folders that `transformers` loads, and read back. Nothing is downloaded."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, BertConfig, ModernBertConfig

from tlm.errors import InputError
from tlm.settings import Model
from tlm.training.encoder import BertEncoder, Encoder, ModernBertEncoder
from tlm.training.texts import Special

MLM_HEAD = "mlm_head.safetensors"
ROTARY_BASE = 10_000.0  # ModernBERT's own, 160,000, is made for texts of thousands of tokens


def make_config(model: Model, vocab_size: int, special: Special, labels: list[str] | None, name: str) -> Any:
    """The `transformers` config of a model for a task (`labels`, `name`: see `set_task`)."""
    common: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": model.max_length,
        "pad_token_id": special.pad,
        "cls_token_id": special.cls,
        "sep_token_id": special.sep,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if model.architecture == "bert":
        config: Any = BertConfig(**common)
    else:
        config = ModernBertConfig(
            **common,
            layer_types=["full_attention"] * model.layers,
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": ROTARY_BASE}},
            classifier_pooling="mean",
        )
    return set_task(set_dropout(config, model.dropout), labels, name)


def set_task(config: Any, labels: list[str] | None, name: str) -> Any:
    """`config` for a task: its classes in order (None is regression: one number) and its name."""
    known = labels if labels is not None else ["value"]
    config.id2label = dict(enumerate(known))
    config.label2id = {label: index for index, label in enumerate(known)}
    config.problem_type = "regression" if labels is None else "single_label_classification"
    config.finetuning_task = name
    return config


def set_dropout(config: Any, share: float) -> Any:
    """`config` with all its dropouts set."""
    names = {
        "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
        "modernbert": ("embedding_dropout", "attention_dropout", "mlp_dropout", "classifier_dropout"),
    }
    for name in names[config.model_type]:
        setattr(config, name, share)
    return config


def build(config: Any, seed: int) -> Encoder:
    """A model with fresh weights, the same for the same seed."""
    classes = {"bert": BertEncoder, "modernbert": ModernBertEncoder}
    if config.model_type not in classes:
        raise InputError(f"model type '{config.model_type}' is not one of ours; expected {' or '.join(classes)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return classes[config.model_type](config)


def load_config(folder: Path) -> Any:
    """The config in a model folder."""
    return AutoConfig.from_pretrained(folder, local_files_only=True)


def load(folder: Path, mlm_head: Path | None = None) -> Encoder:
    """The model in `folder`, and its MLM head where its file is given; else that head is fresh."""
    model = build(load_config(folder), seed=0)
    load_weights(model, folder)
    if mlm_head is not None:
        model.mlm.load_state_dict(load_file(mlm_head))
    return model


def load_weights(model: Encoder, folder: Path) -> None:
    """Give `model` all weights in `folder`."""
    model.body.load_state_dict(load_file(folder / "model.safetensors"))


def load_encoder(model: Encoder, folder: Path) -> None:
    """Give `model` the weights in `folder`, but keep its own classification head (whose classes may be others)."""
    stored = load_file(folder / "model.safetensors")
    shared = {name: value for name, value in stored.items() if not name.startswith(model.head_names)}
    missing, unexpected = model.body.load_state_dict(shared, strict=False)
    assert not unexpected
    assert all(name.startswith(model.head_names) for name in missing)


def parameter_count(model: Encoder) -> int:
    """Parameters of the exported model."""
    return sum(parameter.numel() for parameter in model.body.parameters())


def save(model: Encoder, folder: Path, tokenizer: Path) -> None:
    """Write the model folder: config, weights, and the tokenizer with the model's length and inputs."""
    folder.mkdir(parents=True)
    model.body.config.architectures = [type(model.body).__name__]
    model.body.config.save_pretrained(folder)
    save_file(model.body.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copyfile(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    config = json.loads((tokenizer / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["model_max_length"] = model.body.config.max_position_embeddings
    types = ["token_type_ids"] if model.body.config.model_type == "bert" else []
    config["model_input_names"] = ["input_ids", *types, "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1, sort_keys=True), encoding="utf-8")


def save_mlm_head(model: Encoder, path: Path) -> None:
    """Write the head that predicts tokens; the embedding matrix it shares is in the model folder."""
    save_file(model.mlm.state_dict(), path)
