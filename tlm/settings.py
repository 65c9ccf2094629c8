"""What can be set for every step, each with its range; a preset is one full set of values."""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count: TypeAlias = Annotated[int, Field(gt=0)]
Amount: TypeAlias = Annotated[float, Field(ge=0)]
Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Rate: TypeAlias = Annotated[float, Field(gt=0)]
Schedule: TypeAlias = Literal["linear", "cosine", "constant"]
Precision: TypeAlias = Literal["fp32", "bf16"]


class Section(BaseModel):
    """A group of settings; unknown names, NaN and infinity are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True, defer_build=True
    )


class Retrieve(Section):
    """Which part of the corpus is trained on (paper, section 3.1)."""

    top_k: Count
    """K: passages retrieved for each training example."""
    query: Literal["full", "rake", "auto"] = "full"
    """What is searched: the whole text, its RAKE keywords, or whichever suits the texts' length."""


class Tokenizer(Section):
    """The vocabulary, made from a corpus sample and the training split."""

    kind: Literal["wordpiece", "bpe"] = "wordpiece"
    """Algorithm."""
    vocab_size: Annotated[int, Field(ge=64)]
    """Entries, special tokens included."""


class Model(Section):
    """The encoder, built from a config and trained from scratch."""

    architecture: Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]
    """bert (post-norm, CLS pooling), modernbert (pre-norm, rotary, mean pooling), or a transformers type: roberta …"""
    hidden: Count
    """Width."""
    layers: Count
    """Depth."""
    heads: Count
    """Attention heads."""
    intermediate: Count
    """Width of the feed-forward part."""
    max_length: Annotated[int, Field(ge=8)]
    """Task texts are cut here, in tokens with special tokens."""
    positions: Annotated[int, Field(ge=0)] = 0
    """Positions that the model has; 0: as many as max_length."""
    token_types: Annotated[int, Field(ge=1, le=2)] = 2
    """Whether the two texts of a pair are embedded apart (2, as BERT) or not (1, as RoBERTa); modernbert has none."""
    dropout: Share = 0.0
    """Dropout of stage 1."""

    @model_validator(mode="after")
    def _shape_fits(self) -> "Model":
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"model.hidden is {self.hidden} and model.heads {self.heads}; expected an even width for each head"
            )
        if 0 < self.positions < self.max_length:
            raise ValueError(
                f"model.max_length is {self.max_length} and model.positions {self.positions}; "
                "expected no longer texts than positions"
            )
        return self

    @property
    def reach(self) -> int:
        """The longest text that the model can read, in tokens with special tokens."""
        return self.positions or self.max_length


class Train(Section):
    """Stage 1: joint training on external and internal data (paper, section 3.2)."""

    rho1: Annotated[int, Field(ge=0)] | Literal["inf"]
    """External batches for each internal one; inf trains on external data only."""
    rho2: Amount | Literal["inf"]
    """Weight of the masked-language-model loss on internal data beside the classification loss; inf: it alone."""
    steps: Count
    """Optimizer steps."""
    external_batch: Count
    """Passages of a batch of external data."""
    internal_batch: Count
    """Examples of a batch of internal data."""
    external_length: Annotated[int, Field(ge=8)]
    """Passages are cut here, in tokens with special tokens."""
    lr: Rate
    """Peak learning rate."""
    warmup_steps: Annotated[int, Field(ge=0)]
    """Steps in which the learning rate rises."""
    schedule: Schedule = "linear"
    """How the learning rate falls after that."""
    weight_decay: Amount = 0.01
    """AdamW's weight decay; biases and norms have none."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW's averages."""
    mask_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of tokens to predict (of them 80 % masked, 10 % replaced, 10 % kept)."""
    internal_loss: Literal["normalised", "sum"] = "normalised"
    """normalised: (rho2·MLM + CE)/(rho2+1), the released code; sum: rho2·MLM + CE, the paper's formula."""
    mask_internal: bool = True
    """Classify the masked text (the released code) or the clean one (a second pass over internal batches)."""
    clip: Amount = 1.0
    """Largest norm of the gradient; 0 is off."""
    accumulation: Count = 1
    """Parts in which a batch is computed, to save memory; the gradient is that of the whole batch."""
    precision: Precision = "fp32"
    """Arithmetic of the forward pass."""

    @model_validator(mode="after")
    def _warmup_fits(self) -> "Train":
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"train.warmup_steps is {self.warmup_steps} and train.steps {self.steps}; "
                "expected fewer steps of warm-up than of training"
            )
        return self


class Finetune(Section):
    """Stage 2: the classifier alone, the best on dev is kept (paper, section 3.3)."""

    epochs: Rate = 3.0
    """Passes over the training examples, where steps is 0."""
    steps: Annotated[int, Field(ge=0)] = 0
    """Optimizer steps; 0: as many as `epochs` need."""
    batch: Count
    """Examples of a batch."""
    lr: Rate
    """Peak learning rate."""
    warmup_share: Share = 0.1
    """Share of the steps in which the learning rate rises."""
    schedule: Schedule = "linear"
    """How the learning rate falls after that."""
    weight_decay: Amount = 0.0
    """AdamW's weight decay; biases and norms have none."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW's averages."""
    evaluations: Count = 10
    """Times dev is scored, evenly spread; the last step is one of them."""
    reset_head: bool = True
    """Begin with a fresh classification head, as the released code does."""
    dropout: Share = 0.1
    """Dropout of stage 2."""
    clip: Amount = 1.0
    """Largest norm of the gradient; 0 is off."""
    accumulation: Count = 1
    """Parts in which a batch is computed, to save memory."""
    precision: Precision = "fp32"
    """Arithmetic of the forward pass."""


class Preset(Section):
    """All settings of a run, and where their values come from.

    `source` has a sentence for each section, and for single settings (``train.rho1``) that have another.
    """

    name: str
    retrieve: Retrieve
    tokenizer: Tokenizer
    model: Model
    train: Train
    finetune: Finetune
    source: dict[str, str]

    @model_validator(mode="after")
    def _lengths_fit(self) -> "Preset":
        if self.train.external_length > self.model.reach:
            raise ValueError(
                f"train.external_length is {self.train.external_length} and the model has {self.model.reach} positions "
                "(model.positions, or else model.max_length); expected no longer passages"
            )
        return self


SECTIONS: dict[str, type[Section]] = {
    "retrieve": Retrieve, "tokenizer": Tokenizer, "model": Model, "train": Train, "finetune": Finetune,
}  # fmt: skip
