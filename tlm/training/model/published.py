"""Published models: their shape, and their weights in our encoders."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForSequenceClassification
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
from transformers.utils import logging

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft
from tlm.data.ranges import Ints
from tlm.data.tasks.examples import SEVERAL, classes_of
from tlm.errors import InputError, nearest, reason
from tlm.settings.sections import Model
from tlm.training.input.located import HERE
from tlm.training.input.texts import Special
from tlm.training.input.tokenizer import KEPT
from tlm.training.model import build
from tlm.training.model.encoder import Encoder
from tlm.training.model.foreign import model_types, plain_config, trial

Weights: TypeAlias = dict[str, torch.Tensor]


def shape_of(folder: Path, wanted: Model, layers: int = 0) -> Model:
    """The settings of a published model, with the length and form of texts and the dropout of `wanted`.

    Args:
        folder: The published model.
        wanted: What to take the length and form of texts and the dropout from.
        layers: How many layers to keep; 0: all.

    Raises:
        InputError: its config cannot be read, it is no encoder that predicts words and classes, it has fewer layers,
            or too few positions for texts of that length.
    """
    config = _config(folder)
    try:
        own = config.num_hidden_layers
        if not 0 <= layers <= own:
            raise InputError(f"layers is {layers} and {folder} has {own}; expected 0 (all) to {own}")
        return Model(
            architecture=config.model_type,
            hidden=config.hidden_size,
            layers=layers or own,
            heads=config.num_attention_heads,
            intermediate=getattr(config, "intermediate_size", None) or config.hidden_dim,
            positions=_positions(config),
            token_types=min(2, max(1, getattr(config, "type_vocab_size", 1))),
            **wanted.model_dump(include={"max_length", "cut", "dropout", "spans_first"}),
        )
    except ValidationError as error:
        text = str(error.errors()[0].get("ctx", {}).get("error", error))
        raise InputError(f"{folder}: {' '.join(text.split())}; set model.max_length, or take another model") from None
    except (AttributeError, TypeError, RuntimeError, ZeroDivisionError) as error:
        raise InputError(f"{folder} is no encoder of a known form ({reason(error)}); take another model") from None


def _config(folder: Path) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, **HERE)
    except Exception as error:  # of many kinds, as the file may be of any form
        what = f"{folder}/config.json does not load: {reason(error)}"
        raise InputError(f"{what}; expected an encoder of transformers") from None
    if config.model_type not in model_types():
        hint = nearest(config.model_type, model_types())
        raise InputError(f"{folder} is a '{config.model_type}', no encoder that predicts words and classes{hint}")
    return config


def _positions(config: Any) -> int:
    """The longest text, in tokens. RoBERTa and models like it count positions from the padding id + 1."""
    with torch.device("meta"):
        base = AutoModelForSequenceClassification.from_config(config).base_model  # type: ignore[no-untyped-call]
    for name, part in base.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding) and part.padding_idx is not None:
            return part.num_embeddings - part.padding_idx - 1
    return int(config.max_position_embeddings)


def write(draft: Draft, folder: Path, inputs: dict[str, Artifact], shape: Model, facts: dict[str, Any]) -> None:
    """Write a `checkpoint`: the encoder's weights, a fresh classification head, and the MLM head if there is one.

    Args:
        draft: Where to write.
        folder: The published model.
        inputs: The artifacts ``task`` and ``task_tokens``.
        shape: The settings from `shape_of`.
        facts: Arm, seed and name, for the details.
    """
    tokenizer = inputs["task_tokens"].input("tokenizer")
    whole, missing = _library_model(folder, shape.layers)
    config, weights = plain_config(whole.config), whole.state_dict()
    if tokenizer.entries(KEPT):
        config, weights = _trimmed(config, weights, np.load(tokenizer.path(KEPT), allow_pickle=False))
    _check(config, tokenizer, folder)
    model = build.build(_for_task(config, inputs, shape), facts["seed"])
    _take_encoder(model, weights, missing, folder)
    try:
        trial(model)
    except Exception as error:  # of many kinds, which all mean the same to the user
        what = f"{folder} is a '{config['model_type']}' that does not work as an encoder here ({reason(error)})"
        raise InputError(f"{what}; take another model, such as a BERT or RoBERTa") from None
    build.save(model, draft.folder / "model", tokenizer.path("tokenizer"))
    if all(name.startswith(f"{whole.base_model_prefix}.") for name in missing):
        model.mlm.load_state_dict(_token_head(model, weights))
        build.save_mlm_head(model, draft.folder / build.MLM_HEAD)
    cost = dict.fromkeys(("steps", "tokens", "padded_tokens", "flops", "paper_flops"), 0)
    draft.details = {**facts, "parameters": build.parameter_count(model), "cost": cost}
    draft.counts = {"parameters": draft.details["parameters"]}


def _for_task(config: dict[str, Any], inputs: dict[str, Artifact], shape: Model) -> dict[str, Any]:
    """The config.json of a classifier for the task, given that of the published model."""
    classifier = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[config["model_type"]]
    base = build.with_dropout({**config, "architectures": [classifier], **build.reading(shape)}, shape.dropout)
    labels, task = classes_of(inputs["task"]), inputs["task"].details
    marks = inputs["task_tokens"].details.get("marks", ())
    return build.with_task(base, labels, task["name"], marks, several=task["problem"] == SEVERAL)


def _library_model(folder: Path, layers: int) -> tuple[Any, set[str]]:
    """The library's model with its first `layers`, and the names of the weights that the files lack."""
    config = _config(folder)
    if layers < config.num_hidden_layers:
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
        config.num_hidden_layers = layers
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # what is missing or too much is checked here
    try:
        whole, found = AutoModelForMaskedLM.from_pretrained(
            folder, config=config, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **HERE
        )
    except Exception as error:  # three libraries read the files, each with its own errors
        raise InputError(f"{folder} does not load: {reason(error)}; download the model again") from None
    return whole, set(found["missing_keys"])


def _trimmed(config: dict[str, Any], weights: Weights, kept: Ints) -> tuple[dict[str, Any], Weights]:
    """The config and the weights of a model that knows only the tokens `kept`, given by their old ids."""
    size = config["vocab_size"]
    new_ids = {old: new for new, old in enumerate(kept.tolist())}
    config, weights = {**config, "vocab_size": len(kept)}, dict(weights)
    for name, value in config.items():
        if name.endswith("_token_id"):
            config[name] = new_ids.get(value) if isinstance(value, int) else None
    for name, tensor in weights.items():
        if tensor.ndim > 0 and len(tensor) == size:
            weights[name] = tensor[kept]
    return config, weights


def _check(config: dict[str, Any], tokenizer: Artifact, folder: Path) -> None:
    pad, size = Special.of(tokenizer).pad, int(tokenizer.details["vocab_size"])
    if config.get("pad_token_id") not in (None, pad) or size > config["vocab_size"]:
        raise InputError(
            f"{folder}: its tokenizer has {size} entries and the padding id {pad}, its config.json "
            f"{config['vocab_size']} and {config['pad_token_id']}; give the folder the tokenizer that belongs to it"
        )


def _take_encoder(model: Encoder, theirs: Weights, missing: set[str], folder: Path) -> None:
    """Copy all of `theirs` except the classification head. Raises InputError if the files lack some."""
    mine, head = model.body.state_dict(), model.body.head_names
    names = [name for name in mine if not name.startswith(head)]
    lacking = [name for name in names if name not in theirs or name in missing]
    if lacking:
        raise InputError(f"{folder} lacks weights ({', '.join(lacking[:3])}); download the model again")
    model.body.load_state_dict({**mine, **{name: theirs[name] for name in names}})


def _token_head(model: Encoder, theirs: Weights) -> Weights:
    """The weights of our MLM head, from the library's."""
    found = {}
    for name in model.mlm.state_dict():
        part, dot, rest = name.partition(".")
        found[name] = theirs[model.body.mlm_names.get(part, part) + dot + rest]
    return found
