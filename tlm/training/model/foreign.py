"""Encoders that are not written out here: `transformers`' own modules, run as both stages run ours.

Its class for classification and its class for masked-language modelling stand on the same encoder. That is computed
once; the code of each class then runs with a stand-in in the encoder's place, which hands it the states: for tokens
only those to predict, so that no logits are computed that nobody reads.
"""

import inspect
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from tlm.errors import InputError, reason
from tlm.settings import Model
from tlm.training.input.batches import Batch
from tlm.training.model.encoder import Body, Encoder, Inputs, to_device

_OTHER_NAMES = {"intermediate_size": "hidden_dim"}  # of what most configs call alike
_VOLATILE = ("transformers_version", "_name_or_path")
_SMALL = 64  # entries of the vocabulary of a trial


@lru_cache(1)
def model_types() -> frozenset[str]:
    """The library's encoders of text alone that have both a masked-language model and a classifier."""
    both = MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys() & MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.keys()
    return frozenset(name for name in both if not CONFIG_MAPPING[name].sub_configs)


def check_shape(model: Model) -> None:
    """Raise InputError where the library has no encoder alone of this shape that works as `ForeignBody` expects.

    One of a single layer reads two short texts.
    """
    told = f"model.architecture={model.architecture}"
    try:
        config = foreign_config(model.model_copy(update={"layers": 1}), _SMALL, 0)
        if library_config(config).is_encoder_decoder:
            raise ValueError("it has a decoder too")
        ids = np.full((2, 8), _SMALL - 1)
        places = np.array([1, 13])
        batch = Batch(ids, np.array([8, 6]), None, None, ids, places, ids.ravel()[places], of_rows=2, of_masked=2)
        texts = to_device(batch, torch.device("cpu"))
        with torch.random.fork_rng(devices=[]):
            trial = Encoder(ForeignBody({**config, "id2label": {"0": "a", "1": "b"}, "pad_token_id": 0}))
            trial(texts, texts.ids, tokens=True, classes=True)
    except Exception as error:  # the library raises many kinds, all of which mean the same to a person
        raise InputError(
            f"{told} cannot be trained with these settings of the model ({reason(error)}); change them, or take "
            "another, such as roberta"
        ) from None


def foreign_config(model: Model, vocab_size: int, pad: int) -> dict[str, Any]:
    """The part of config.json that gives the shape; the rest is the library's default for the architecture.

    There are more positions than `model.reach`: RoBERTa and its kin begin to count after the id of the padding.
    """
    shape = {
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.intermediate,
        "max_position_embeddings": model.reach + pad + 1,
        "vocab_size": vocab_size,
        "type_vocab_size": model.token_types,
    }
    kind: Any = CONFIG_MAPPING[model.architecture]
    known = {*vars(kind()), *kind.attribute_map}
    named = {name if name in known else _OTHER_NAMES.get(name, ""): value for name, value in shape.items()}
    config = kind(**{name: value for name, value in named.items() if name in known})
    return {**plain_config(config), "architectures": [MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[kind.model_type]]}


def plain_config(config: PreTrainedConfig) -> dict[str, Any]:
    """As config.json has it, without what says nothing about the model."""
    return {name: value for name, value in config.to_dict().items() if name not in _VOLATILE}


def library_config(config: dict[str, Any]) -> PreTrainedConfig:
    """The library's own object, given what is in config.json."""
    kind: Any = CONFIG_MAPPING[config["model_type"]]
    return kind.from_dict(config)  # type: ignore[no-any-return]


def foreign_dropout(config: dict[str, Any], share: float) -> dict[str, float]:
    """All dropouts in `config`, set."""
    names = [name for name in config if "dropout" in name and not isinstance(config[name], bool)]
    return {name: share for name in names if isinstance(config[name], int | float | None)}


class ForeignBody(Body):
    """Its parameters are those of the library's ``…ForSequenceClassification``."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        whole = AutoModelForSequenceClassification.from_config(library_config(config))  # type: ignore[no-untyped-call]
        self._prefix = whole.base_model_prefix
        for name, part in whole.named_children():
            self.add_module(name, part)
        self._classes = _Code(whole, self._base)
        heads = [name for name, _ in whole.named_children() if name != self._prefix]
        pooler = [f"{self._prefix}.pooler"] if getattr(self._base, "pooler", None) is not None else []
        self.head_names = tuple(f"{name}." for name in [*pooler, *heads])
        told = inspect.signature(self._base.forward).parameters
        self._typed = "token_type_ids" in told and config.get("type_vocab_size", 1) > 1

    @property
    def _base(self) -> Any:
        return getattr(self, self._prefix)

    def read(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """See `Body.read`."""
        given = {"input_ids": ids, "attention_mask": None if inputs.mask is None else inputs.mask[:, 0, 0].long()}
        types = {"token_type_ids": inputs.types} if self._typed and inputs.types is not None else {}
        output = self._base(**given, **types)
        states = None
        if tokens:
            states = output[0].flatten(0, 1).index_select(0, inputs.positions)
        return states, self._classes(output, **given) if classes else None

    def embedding(self) -> Tensor:
        """See `Body.embedding`."""
        return self._base.get_input_embeddings().weight  # type: ignore[no-any-return]

    def token_head(self) -> nn.Module:
        """See `Body.token_head`."""
        return ForeignTokenHead(library_config(self.config), self._base)


class ForeignTokenHead(nn.Module):
    """Its parameters are those that ``…ForMaskedLM`` has beside the encoder, each once."""

    def __init__(self, config: PreTrainedConfig, base: Any) -> None:
        super().__init__()
        whole = AutoModelForMaskedLM.from_config(config)  # type: ignore[no-untyped-call]
        shared = whole.get_input_embeddings().weight
        self._decoder = (whole.get_output_embeddings(),)  # in a tuple: no module of this one
        self._tied = self._decoder[0].weight is shared
        for name, part in whole.named_children():
            if name != whole.base_model_prefix:
                self.add_module(name, part)
        _name_once(self, {id(shared)})
        self._tokens = _Code(whole, base)

    def forward(self, states: Tensor, embedding: Tensor) -> Tensor:
        """Logits [M, vocabulary]."""
        if self._tied:
            self._decoder[0].__dict__["weight"] = embedding
        ids = torch.zeros((1, len(states)), dtype=torch.long, device=states.device)
        return self._tokens(BaseModelOutput(last_hidden_state=states[None]), input_ids=ids)[0]  # type: ignore[no-any-return]


def _name_once(module: nn.Module, known: set[int]) -> None:
    """Leave each parameter to one module, and those in `known` to none: the others keep it as a plain attribute."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None and id(parameter) in known:
                del part._parameters[name]
                part.__dict__[name] = parameter
            known.add(id(parameter))


class _Code:
    """Calls a class of the library with its encoder's output instead of the encoder. It owns no modules."""

    def __init__(self, whole: Any, base: Any) -> None:
        self.whole, self.stand_in = whole, _StandIn(base)
        setattr(whole, whole.base_model_prefix, self.stand_in)

    def __call__(self, output: Any, **inputs: Any) -> Any:
        """Logits."""
        self.stand_in.output = output
        logits = self.whole(**inputs).logits
        self.stand_in.output = None
        return logits


class _StandIn(nn.Module):
    """Gives what it was given; all else is asked of the real encoder."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self._real = SimpleNamespace(base=base)
        self.output: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"].base, name)

    def forward(self, *_: Any, **__: Any) -> Any:
        """The output that was given."""
        return self.output
