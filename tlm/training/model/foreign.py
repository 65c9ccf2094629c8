"""All other encoders: `transformers`' own modules, run as both stages run ours.

Its classes for classification and for masked-language modelling contain the same encoder, which is computed once. The
code of each class then runs with a stand-in for the encoder, which returns the states: for the MLM class only those of
the tokens to predict, so that no other logits are computed.
"""

import inspect
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM, AutoModelForSequenceClassification, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import AttentionInterface
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from tlm.errors import InputError, nearest, reason
from tlm.settings.sections import OWN, Model
from tlm.training.model.encoder import Body, Encoder, Inputs, attention_format, common_shape

_VOLATILE = ("transformers_version", "_name_or_path")
_SMALL = 64  # vocabulary size for a trial


def _attention(module: nn.Module, query: Tensor, *parts: Any, **given: Any) -> Any:
    with attention_format(query.device) as cast:
        given = {name: cast(value) for name, value in given.items()}
        return sdpa_attention_forward(module, cast(query), *map(cast, parts), **given)


AttentionInterface.register("sdpa", _attention)


@lru_cache(1)
def model_types() -> frozenset[str]:
    """The library's text encoders that have both a masked-language model and a classifier."""
    both = MODEL_FOR_MASKED_LM_MAPPING_NAMES.keys() & MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES.keys()
    return frozenset(name for name in both if not CONFIG_MAPPING[name].sub_configs)


def check_architecture(model: Model) -> None:
    """Raise InputError if the library has no encoder of this architecture and shape that works as `ForeignBody` needs.

    To find out, a model of a single layer reads two short texts.
    """
    given = f"model.architecture={model.architecture}"
    if model.architecture not in model_types():
        hint = nearest(model.architecture, (*OWN, *model_types()))
        raise InputError(f"{given} is no encoder of transformers that predicts words and classes{hint}")
    try:
        config = foreign_config(model.model_copy(update={"layers": 1}), _SMALL, 0)
        if library_config(config).is_encoder_decoder:
            raise ValueError("it has a decoder too")
        with torch.random.fork_rng(devices=[]):
            trial(Encoder(ForeignBody({**config, "id2label": {"0": "a", "1": "b"}, "pad_token_id": 0})))
    except Exception as error:  # of many kinds, which all mean the same to the user
        raise InputError(
            f"{given} cannot be trained with these settings of the model ({reason(error)}); change them, or take "
            "another, such as roberta"
        ) from None


def trial(encoder: Encoder) -> None:
    """Read two short texts. Whatever the library raises shows that the model does not work as `ForeignBody` needs."""
    ids, lengths = torch.full((2, 8), encoder.body.config["vocab_size"] - 1), torch.tensor([8, 6])
    mask = (torch.arange(8) < lengths[:, None])[:, None, None, :]
    positions, queries = torch.tensor([1, 13]), torch.tensor([[0, 1], [8, 13]])
    texts = Inputs(ids, lengths, positions, queries, torch.tensor([1, 3]), ids[:, 0], of_rows=2, of_masked=2, mask=mask)
    encoder(texts, ids, tokens=True, classes=True)


def foreign_config(model: Model, vocab_size: int, pad: int) -> dict[str, Any]:
    """The part of config.json that gives the shape; the rest has the library's defaults for the architecture.

    There are more positions than `model.reach`, because RoBERTa and models like it count them from the padding id + 1.
    """
    shape = common_shape(model, vocab_size) | {"type_vocab_size": model.token_types}
    shape["max_position_embeddings"] += pad + 1
    kind: Any = CONFIG_MAPPING[model.architecture]
    known = {*vars(kind()), *kind.attribute_map}
    if "intermediate_size" not in known:
        shape["hidden_dim"] = shape["intermediate_size"]  # as DistilBERT calls it
    config = kind(**{name: value for name, value in shape.items() if name in known})
    return {**plain_config(config), "architectures": [MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[kind.model_type]]}


def plain_config(config: PreTrainedConfig) -> dict[str, Any]:
    """The content of config.json, without entries that say nothing about the model."""
    return {name: value for name, value in config.to_dict().items() if name not in _VOLATILE}


def library_config(config: dict[str, Any]) -> PreTrainedConfig:
    """The library's config object for the content of config.json."""
    kind: Any = CONFIG_MAPPING[config["model_type"]]
    return kind.from_dict(config)  # type: ignore[no-any-return]


def foreign_dropout(config: dict[str, Any], share: float) -> dict[str, float]:
    """Return all dropouts of `config`, set to `share`."""
    names = [name for name in config if "dropout" in name and not isinstance(config[name], bool)]
    return {name: share for name in names if isinstance(config[name], int | float | None)}


class ForeignBody(Body):
    """A body with the parameters of the library's ``…ForSequenceClassification``."""

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
        parameters = inspect.signature(self._base.forward).parameters
        self._typed = "token_type_ids" in parameters and config.get("type_vocab_size", 1) > 1

    @property
    def _base(self) -> Any:
        return getattr(self, self._prefix)

    def read(self, inputs: Inputs, ids: Tensor, tokens: bool, classes: bool) -> tuple[Tensor | None, Tensor | None]:
        """Run the library's encoder once, and its classifier on the result if `classes`."""
        mask = None if inputs.mask is None else inputs.mask[:, 0, 0].long()
        given = {"input_ids": ids, "attention_mask": mask}
        types = {"token_type_ids": inputs.types} if self._typed and inputs.types is not None else {}
        device = ids.device.type
        fits_bf16 = self.config["model_type"] != "deberta"  # whose mask is too large for it
        with torch.autocast(device, enabled=fits_bf16 and torch.is_autocast_enabled(device)):
            output = self._base(**given, **types)
        states = output[0].flatten(0, 1).index_select(0, inputs.positions) if tokens else None
        return states, self._classes(output, **given) if classes else None

    def embedding(self) -> Tensor:
        """The token embeddings, [vocabulary, width]."""
        return self._base.get_input_embeddings().weight  # type: ignore[no-any-return]

    def token_head(self) -> nn.Module:
        """The head of the library's class for masked-language modelling."""
        return ForeignTokenHead(library_config(self.config), self._base)


class ForeignTokenHead(nn.Module):
    """A head with the parameters that the library's ``…ForMaskedLM`` has besides the encoder."""

    def __init__(self, config: PreTrainedConfig, base: Any) -> None:
        super().__init__()
        whole = AutoModelForMaskedLM.from_config(config)  # type: ignore[no-untyped-call]
        shared = whole.get_input_embeddings().weight
        self._decoder = (whole.get_output_embeddings(),)  # in a tuple, so that it is no submodule
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
    """Register each parameter once, and those in `known` not at all; elsewhere it becomes a plain attribute."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None and id(parameter) in known:
                del part._parameters[name]
                part.__dict__[name] = parameter
            known.add(id(parameter))


class _Code:
    """Runs the code of a library class on an encoder's output. It owns no modules."""

    def __init__(self, whole: Any, base: Any) -> None:
        self.whole, self.stand_in = whole, _StandIn(base)
        setattr(whole, whole.base_model_prefix, self.stand_in)

    def __call__(self, output: Any, **inputs: Any) -> Any:
        """The logits of the class, given the encoder's `output`."""
        self.stand_in.output = output
        logits = self.whole(**inputs).logits
        self.stand_in.output = None
        return logits


class _StandIn(nn.Module):
    """Returns a given output; everything else comes from the real encoder."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.__dict__["_real"] = base  # so that it is no submodule
        self.output: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_real"], name)

    def forward(self, *_: Any, **__: Any) -> Any:
        """The given output."""
        return self.output
