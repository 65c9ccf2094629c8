"""The settings of every step, each with its range. A preset has a value for each of them."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_HITS = 10_000  # of a query; Elasticsearch's default limit (index.max_result_window), used for both engines
Count: TypeAlias = Annotated[int, Field(gt=0, le=10**9)]
Whole: TypeAlias = Annotated[int, Field(ge=0, le=10**9)]
Length: TypeAlias = Annotated[int, Field(ge=8, le=10**9)]
Amount: TypeAlias = Annotated[float, Field(ge=0)]
Share: TypeAlias = Annotated[float, Field(ge=0, lt=1)]
Rate: TypeAlias = Annotated[float, Field(gt=0, le=10**9)]
Schedule: TypeAlias = Literal["linear", "cosine", "constant"]
Precision: TypeAlias = Literal["fp32", "bf16", "auto"]


# Settings that came after the first keys, with the values that these keys stand for. Keys leave such a value out.
LATER: dict[str, Any] = {
    "embeddings": "random", "head_steps": "internal", "epsilon": 1e-8, "weights": "all", "masking": "tokens",
    "cut": "head", "spans_first": False,
}  # fmt: skip


class Section(BaseModel):
    """A group of settings; unknown names, NaN and infinity are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)

    def for_key(self, without: Iterable[str] = ()) -> dict[str, Any]:
        """The settings for the key of what they decide; `without` names settings that have no effect there."""
        same = {name for name, value in LATER.items() if getattr(self, name, None) == value}
        return self.model_dump(mode="json", exclude=same.union(without))


class Retrieve(Section):
    """The part of the corpus to train on (paper, section 3.1).

    Attributes:
        top_k: K, the number of passages retrieved for each training example.
        query: What is searched for: the whole text, its RAKE keywords, or whichever suits the length of the texts.
        share: What has the same share of the hits: each example, or each class, where the examples of rare classes
            retrieve up to five times top_k.
    """

    top_k: Annotated[int, Field(gt=0, le=MOST_HITS)]
    query: Literal["full", "rake", "auto"] = "full"
    share: Literal["examples", "classes"] = "examples"


class Tokenizer(Section):
    """The vocabulary, made from a corpus sample and the training split.

    Attributes:
        kind: Tokenization algorithm.
        vocab_size: Number of entries, special tokens included.
    """

    kind: Literal["wordpiece", "bpe"] = "wordpiece"
    vocab_size: Annotated[int, Field(ge=64)]


class Model(Section):
    """The encoder, built from a config and trained from scratch.

    Attributes:
        architecture: bert (post-norm, CLS pooling), modernbert (pre-norm, rotary, mean pooling), or a
            transformers type: roberta …
        hidden: Width of the hidden states.
        layers: Number of layers.
        heads: Attention heads of a layer.
        intermediate: Width of the feed-forward network.
        max_length: Longest task text, in tokens with special tokens; longer ones are cut.
        positions: Positions of the model; 0: as many as max_length.
        token_types: Token types: 2 tells the two texts of a pair apart (BERT), 1 does not (RoBERTa); modernbert has
            none.
        cut: What is read of longer texts: their head, or head+tail, a quarter from the beginning and the rest from the
            end; of a pair, each text is cut so.
        dropout: Dropout of stage 1.
        spans_first: Put the spans that the task marks in its texts, as in [[ … ]], with the words between them, in
            front of each text. It has no effect on texts without marks.
    """

    architecture: Annotated[str, Field(pattern="^[A-Za-z0-9_-]+$")]
    hidden: Count
    layers: Count
    heads: Count
    intermediate: Count
    max_length: Length
    positions: Whole = 0
    token_types: Annotated[int, Field(ge=1, le=2)] = 2
    cut: Literal["head", "head+tail"] = "head"
    dropout: Share = 0.0
    spans_first: bool = False

    @model_validator(mode="after")
    def _shape_fits(self) -> "Model":
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"model.hidden is {self.hidden} and model.heads {self.heads}; expected an even width for each head"
            )
        if 0 < self.positions < self.max_length:
            raise ValueError(
                f"model.max_length is {self.max_length} and model.positions {self.positions}; "
                "expected max_length to be at most positions"
            )
        return self

    @property
    def reach(self) -> int:
        """The longest text that the model can read, in tokens with special tokens."""
        return self.positions or self.max_length

    def for_key(self, without: Iterable[str] = ()) -> dict[str, Any]:
        """As of every section; `positions` count if they differ from `max_length`, token types where there are some."""
        idle = {"positions": self.reach == self.max_length, "token_types": self.architecture == "modernbert"}
        return super().for_key({*without, *(name for name, is_idle in idle.items() if is_idle)})


class Train(Section):
    """Stage 1: joint training on external and internal data (paper, section 3.2).

    Attributes:
        rho1: External batches for each internal batch; inf trains on external data only.
        rho2: Weight of the masked-language-model loss on internal data, relative to the classification loss; inf: the
            masked-language-model loss alone.
        steps: Optimizer steps.
        external_batch: Passages in a batch of external data.
        internal_batch: Examples in a batch of internal data.
        external_length: Longest passage, in tokens with special tokens; longer ones are cut.
        lr: Peak learning rate.
        warmup_steps: Steps over which the learning rate rises.
        schedule: How the learning rate falls after the warm-up.
        weight_decay: AdamW's weight decay; biases and norms have none.
        betas: AdamW's decay rates of the running averages.
        epsilon: What AdamW adds to its denominator.
        head_steps: Which steps update the classification head: internal, or all. In an external step its gradient is
            then zero, so that AdamW's momentum goes on to move it and weight decay shrinks it (the released code).
        mask_share: Share of tokens to predict (of them 80 % masked, 10 % replaced, 10 % kept).
        masking: What is chosen to be predicted: single tokens; or whole words, with all of their pieces (in
            languages without spaces, only with a wordpiece vocabulary).
        internal_loss: normalised: (rho2·MLM + CE)/(rho2+1), the released code; sum: rho2·MLM + CE, the paper's
            formula.
        mask_internal: Classify the masked text (the released code), or else the clean text (a second pass over
            internal batches).
        clip: Largest norm of the gradient; 0 turns clipping off.
        accumulation: Parts that a batch is computed in, to save memory; the gradient is that of the whole batch.
            Several GPUs share the parts.
        precision: Number format of the forward pass; auto: bf16 on a GPU or CPU that has it, else fp32.
        embeddings: How the embeddings of tokens start: random; or ppmi-svd, vectors of the tokens that stand near each
            other in subset and task, scaled like random ones. It has no effect if stage 1 starts from a checkpoint.
    """

    rho1: Whole | Literal["inf"]
    rho2: Amount | Literal["inf"]
    steps: Count
    external_batch: Count
    internal_batch: Count
    external_length: Length
    lr: Rate
    warmup_steps: Whole
    schedule: Schedule = "linear"
    weight_decay: Amount = 0.01
    betas: tuple[Share, Share] = (0.9, 0.999)
    epsilon: Rate = 1e-8
    head_steps: Literal["internal", "all"] = "internal"
    mask_share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    masking: Literal["tokens", "words"] = "tokens"
    internal_loss: Literal["normalised", "sum"] = "normalised"
    mask_internal: bool = True
    clip: Amount = 1.0
    accumulation: Count = 1
    precision: Precision = "fp32"
    embeddings: Literal["random", "ppmi-svd"] = "random"

    @model_validator(mode="after")
    def _warmup_fits(self) -> "Train":
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"train.warmup_steps is {self.warmup_steps} and train.steps {self.steps}; "
                "expected fewer steps of warm-up than of training"
            )
        return self


class Finetune(Section):
    """Stage 2: the classifier alone; the model that is best on dev is kept (paper, section 3.3).

    Attributes:
        epochs: Passes over the training examples, if steps is 0.
        steps: Optimizer steps; 0: as many as `epochs` need.
        batch: Examples in a batch.
        lr: Peak learning rate.
        warmup_share: Share of the steps over which the learning rate rises.
        schedule: How the learning rate falls after the warm-up.
        weight_decay: AdamW's weight decay; biases and norms have none.
        betas: AdamW's decay rates of the running averages.
        epsilon: What AdamW adds to its denominator.
        evaluations: How often dev is scored, at even distances and after the last step.
        reset_head: Start with a new classification head, as the released code does.
        weights: Which weights are trained: all; or the classification head alone; or with it all biases (bias:
            BitFit), or changes of rank 8 of attention's projections, which are merged into the weights at the end
            (lora). A part takes less memory, and a learning rate ten times as high.
        dropout: Dropout of stage 2.
        clip: Largest norm of the gradient; 0 turns clipping off.
        accumulation: Parts that a batch is computed in, to save memory. Several GPUs share the parts.
        precision: Number format of the forward pass; auto: bf16 on a GPU or CPU that has it, else fp32.
    """

    epochs: Rate = 3.0
    steps: Whole = 0
    batch: Count
    lr: Rate
    warmup_share: Share = 0.1
    schedule: Schedule = "linear"
    weight_decay: Amount = 0.0
    betas: tuple[Share, Share] = (0.9, 0.999)
    epsilon: Rate = 1e-8
    evaluations: Count = 10
    reset_head: bool = True
    weights: Literal["all", "head", "bias", "lora"] = "all"
    dropout: Share = 0.1
    clip: Amount = 1.0
    accumulation: Count = 1
    precision: Precision = "fp32"

    def for_key(self, without: Iterable[str] = ()) -> dict[str, Any]:
        """As of every section; where `steps` are given, `epochs` have no effect."""
        return super().for_key({*without, "epochs"} if self.steps else without)


class Preset(Section):
    """All settings of a run, and where their values come from.

    Attributes:
        name: Name of the preset.
        retrieve: Retrieval from the corpus.
        tokenizer: The vocabulary.
        model: The encoder.
        train: Stage 1.
        finetune: Stage 2.
        source: Where the values come from: a sentence for each section, and for each setting (``train.rho1``) that
            has another source.
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
                "(model.positions, or else model.max_length); expected external_length to be at most these"
            )
        return self


SECTIONS: dict[str, type[Section]] = {
    "retrieve": Retrieve, "tokenizer": Tokenizer, "model": Model, "train": Train, "finetune": Finetune,
}  # fmt: skip


OWN = ("bert", "modernbert")  # architectures of our own code; the others are those of transformers
