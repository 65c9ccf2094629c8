"""Build models from settings, write them to folders that `transformers` loads, and read them back."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from tlm.data.marks import SPANS_FIRST, Marks
from tlm.data.ranges import CUT, HEAD
from tlm.data.tasks.metrics import MULTI_LABEL, THRESHOLDS
from tlm.settings.sections import Model
from tlm.shallow.folder import CONFIG, config_of
from tlm.training.input.located import MLM_HEAD as MLM_HEAD
from tlm.training.input.texts import Scale, Special
from tlm.training.model.bert import BertBody
from tlm.training.model.encoder import Body, Encoder, LayeredBody, common_shape, write_tensors
from tlm.training.model.modernbert import ModernBertBody

HEADS = "heads.safetensors"  # of several tasks
WEIGHTS = "model.safetensors"
# In config.json: the length that task texts are cut to (the model may have more positions), and the marks around the
# spans that are put first in each text.
TEXT_LENGTH = "tlm_text_length"


_OWN: dict[str, type[LayeredBody]] = {"bert": BertBody, "modernbert": ModernBertBody}


def make_config(model: Model, vocab_size: int, special: Special) -> dict[str, Any]:
    """Return the config.json of a model that has no task yet: see `with_task`."""
    ids = {"pad_token_id": special.pad, "cls_token_id": special.cls, "sep_token_id": special.sep}
    others = {"bos_token_id": None, "eos_token_id": None, "dtype": "float32", **reading(model)}
    return with_dropout({**_shape(model, vocab_size, special), **ids, **others}, model.dropout)


def _shape(model: Model, vocab_size: int, special: Special) -> dict[str, Any]:
    if own := _OWN.get(model.architecture):
        architecture = {"model_type": model.architecture, "architectures": [own.classifier_name]}
        return {**architecture, **common_shape(model, vocab_size), **own.shape(model), **own.fixed}
    from tlm.training.model.foreign import foreign_config

    return foreign_config(model, vocab_size, special.pad)


def is_ours(config: dict[str, Any]) -> bool:
    """Whether the code here implements a config.json; other models need the modules of `transformers`."""
    own = _OWN.get(config["model_type"])
    if own is None:
        return False
    implemented = {**own.fixed, "tie_word_embeddings": True, "decoder_bias": True}
    fits = all(config.get(name, value) == value for name, value in implemented.items())
    return fits and "sliding_attention" not in config.get("layer_types", ())


def with_task(
    config: dict[str, Any], labels: list[str] | None, name: str, marks: Marks = (), *, several: bool = False
) -> dict[str, Any]:
    """Return `config` for the task `name` with the classes `labels`, in order; None is regression, to one number.

    The spans between `marks` are put first in its texts. With `several`, a text may have several of the labels.
    """
    problem = MULTI_LABEL if several else "single_label_classification"
    if labels is None:
        labels, problem = ["value"], "regression"
    without_task = {key: value for key, value in config.items() if key not in (SPANS_FIRST, THRESHOLDS)}
    spans_first = {SPANS_FIRST: [list(pair) for pair in marks]} if marks else {}
    return {
        **without_task,
        **spans_first,
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
        "problem_type": problem,
        "finetuning_task": name,
    }


def for_older(config: dict[str, Any]) -> dict[str, Any]:
    """Return `config` with the names that `transformers` 4.48 to 5.0 knows for layers and positions of ModernBERT.

    These versions ignore `layer_types` or `rope_parameters` and would answer otherwise, without a warning.
    """
    if config["model_type"] != "modernbert" or not is_ours(config):
        return config
    base = config["rope_parameters"]["full_attention"]["rope_theta"]
    return {**config, "global_attn_every_n_layers": 1, "global_rope_theta": base, "local_rope_theta": base}


def with_dropout(config: dict[str, Any], share: float) -> dict[str, Any]:
    """Return `config` with all dropouts set to `share`."""
    if is_ours(config):
        return {**config, **dict.fromkeys(_OWN[config["model_type"]].dropouts, share)}
    from tlm.training.model.foreign import foreign_dropout

    return {**config, **foreign_dropout(config, share)}


def reading(model: Model) -> dict[str, Any]:
    """The entries of config.json about long texts."""
    return {TEXT_LENGTH: model.max_length, **({} if model.cut == HEAD else {CUT: model.cut})}


def text_length(config: dict[str, Any]) -> int:
    """The length to which task texts are cut, in tokens, special tokens included."""
    return int(config.get(TEXT_LENGTH, config["max_position_embeddings"]))


def build(config: dict[str, Any], seed: int) -> Encoder:
    """A model with fresh weights, which depend on the seed alone; torch's global generator is not changed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Encoder(_body(config))


def _body(config: dict[str, Any]) -> Body:
    if is_ours(config):
        return _OWN[config["model_type"]](config)
    from tlm.training.model.foreign import ForeignBody

    return ForeignBody(config)


def load(folder: Path, mlm_head: Path | None = None) -> Encoder:
    """The model in `folder`. Its MLM head comes from the file `mlm_head`, or is fresh."""
    model = build(config_of(folder), seed=0)
    load_weights(model, folder)
    if mlm_head is not None:
        load_mlm_head(model, mlm_head)
    return model


def load_mlm_head(model: Encoder, file: Path) -> None:
    """Load the MLM head from `file`."""
    model.mlm.load_state_dict(load_file(file))


def load_weights(model: Encoder, folder: Path) -> None:
    """Load all weights from `folder`."""
    model.body.load_state_dict(load_file(folder / WEIGHTS))


def load_encoder(model: Encoder, folder: Path) -> None:
    """Load the weights from `folder`, except the classification head, which may have other classes."""
    model.body.load_state_dict({**load_file(folder / WEIGHTS), **model.body.head_state()})


def to_units(model: Encoder, scale: Scale | None) -> None:
    """Have a model that learned standardised numbers answer in the task's unit, whoever loads it.

    The last layer of its head does that. A model of classes, whose scale is None, stays as it is.
    """
    if scale:
        rescale(model, scale.deviation, scale.mean)


def to_standardised(model: Encoder, scale: Scale | None) -> None:
    """Undo `to_units`, for training that goes on."""
    if scale:
        rescale(model, 1 / scale.deviation, -scale.mean / scale.deviation)


def rescale(model: Encoder, factor: float, shift: float = 0.0) -> None:
    """Change the last layer so that it answers factor · y + shift; on the CPU, as not all devices have float64."""
    layer = model.body.output
    with torch.no_grad():
        layer.weight.copy_(layer.weight.cpu().double() * factor)
        layer.bias.copy_(layer.bias.cpu().double() * factor + shift)


def parameter_count(model: Encoder) -> int:
    """Return the number of parameters of the exported model."""
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
    """Write the MLM head; the embeddings that it shares are in the model folder."""
    write_tensors(model.mlm.state_dict(), path)


def load_head(model: Encoder, path: Path, index: int) -> None:
    """Load the classification head of task number `index`, whose parameters are ``<index>.<name>`` in the file."""
    stored = load_file(path)
    model.body.load_state_dict({name: stored[f"{index}.{name}"] for name in model.body.head_state()}, strict=False)
