"""The authors' way of both stages, from their description in the paper (section 3.2) and in docs/method.md.

As described: the library's model; texts padded to the full length when they are tokenized; whole rows shuffled, batches
cut from them; the library's collator masks on the fly; the encoder and both heads run over every position of every
text, logits of the whole vocabulary included; one internal batch after rho1 external ones, in which the classes' logits
count with weight zero, so that AdamW steps their head, too; AdamW with linear warm-up and decay, without weight decay
of biases and norms; no clipping. Stage 2 is the same loop with the classification loss alone, which the paper calls
rho1 = rho2 = 0.

In their favour: rows are ready in memory (theirs are read from Arrow files), there is no multi-process wrapper around
the model and the loader, attention and AdamW are the fused kernels of today, losses are read only at the end, and on a
GPU worker processes make the batches.

Different: the classification head is the one of our model, run by the library's code, so that both sides train the same
model and their losses can be compared. Theirs is linear, GELU, linear on [CLS]: about as much work.

`JointModel` is also what Hugging Face's `Trainer` trains (`research.benchmarks.reference.trainer`), there with all left
out that the library lets its users leave out. tests/benchmarks/test_reference_training.py holds that the losses and
gradients of both are ours on equal inputs.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    PreTrainedTokenizerFast,
    get_linear_schedule_with_warmup,
)

from tlm.settings.sections import Train
from tlm.training.input.texts import Examples, Texts
from tlm.training.model.encoder import Encoder

WORKERS = 4  # processes that make batches for a GPU
CLASSES = "classes"  # how a batch calls the labels of its texts; `labels` are those of its tokens


class JointModel(nn.Module):
    """The library's masked-language model, and the library's classification head on the same encoder.

    Attributes:
        seen: How many tokens it was given so far, padding left out.
    """

    def __init__(self, config: dict[str, Any], rho2: float, normalised: bool = True, sparing: bool = False) -> None:
        """`sparing` computes logits only where a token is to be predicted, and no classes for external data.

        The first is the library's option `sparse_prediction`, which ModernBERT has and BERT has not.
        """
        super().__init__()
        kinds: dict[str, Any] = {
            "bert": (BertConfig, BertForMaskedLM, BertForSequenceClassification),
            "modernbert": (ModernBertConfig, ModernBertForMaskedLM, ModernBertForSequenceClassification),
        }
        self.kind = config["model_type"]
        config_class, tokens_class, classes_class = kinds[self.kind]
        if sparing and self.kind == "modernbert":
            config = {**config, "sparse_prediction": True}
        self.classifier, self.tokens = (made(config_class.from_dict(config)) for made in (classes_class, tokens_class))
        setattr(self.tokens, self.tokens.base_model_prefix, self.classifier.base_model)
        self.tokens.tie_weights()
        self.rho2, self.normalised, self.sparing = rho2, normalised, sparing
        self.seen: Tensor | int = 0

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, classes: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Losses of a batch [B, T].

        Args:
            input_ids: The texts, [B, T].
            attention_mask: 1 where there is a token, [B, T].
            labels: -100 where nothing is to be predicted, [B, T]; None in stage 2.
            classes: [B]; None for external data.
        """
        self.seen = self.seen + attention_mask.sum()
        if labels is None:
            return {"loss": self.classifier(input_ids, attention_mask, labels=classes).loss}
        classify = classes is not None or not self.sparing
        output = self.tokens(input_ids, attention_mask, labels=labels, output_hidden_states=classify)
        mlm = output.loss
        if not classify:
            return {"loss": mlm, "mlm": mlm.detach()}
        class_logits = self._class_logits(output.hidden_states[-1], attention_mask)
        if classes is None:
            return {"loss": mlm + 0.0 * class_logits.sum(), "mlm": mlm.detach()}
        ce = F.cross_entropy(class_logits, classes)
        total = self.rho2 * mlm + ce
        return {"loss": total / (self.rho2 + 1) if self.normalised else total, "mlm": mlm.detach(), "ce": ce.detach()}

    def _class_logits(self, states: Tensor, attention_mask: Tensor) -> Tensor:
        model = self.classifier
        if self.kind == "bert":
            return model.classifier(model.dropout(model.base_model.pooler(states)))  # type: ignore[no-any-return]
        weights = attention_mask.unsqueeze(-1)
        mean = (states * weights).sum(1) / weights.sum(1)
        return model.classifier(model.drop(model.head(mean)))  # type: ignore[no-any-return]

    @torch.no_grad()
    def take(self, ours: Encoder) -> None:
        """Get the weights of a model of ours of the same config."""
        self.classifier.load_state_dict(ours.body.state_dict())
        head = self.tokens.cls.predictions if self.kind == "bert" else self.tokens
        (head.transform if self.kind == "bert" else head.head).load_state_dict(ours.mlm.transform.state_dict())  # type: ignore[union-attr]
        head.decoder.bias.copy_(ours.mlm.bias)


class Rows(Dataset[dict[str, Any]]):
    """Texts as the library's collator takes them, made once: ids with special tokens, cut; padded or not."""

    def __init__(self, texts: Texts, rows: list[int], labels: Any = None, padded: bool = True) -> None:
        """`labels` are class ordinals by row of `texts`, or None."""
        self.features = [_feature(texts, row, padded) for row in rows]
        if labels is not None:
            for feature, row in zip(self.features, rows, strict=True):
                feature[CLASSES] = int(labels[row])

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return dict(self.features[place])


def _feature(texts: Texts, row: int, padded: bool) -> dict[str, Any]:
    special = texts.special
    ids = texts.first.ids[texts.first.offsets[row] : texts.first.offsets[row + 1]][: texts.max_length - 2].tolist()
    ids = [special.cls, *ids, special.sep]
    pad = texts.max_length - len(ids) if padded else 0
    return {"input_ids": ids + [special.pad] * pad, "attention_mask": [1] * len(ids) + [0] * pad}


def external_rows(texts: Texts, limit: int, padded: bool = True) -> Rows:
    """Passages, evenly drawn from all, at most `limit`: a short measurement sees no more of them."""
    return Rows(texts, list(range(0, len(texts), max(1, len(texts) // limit)))[:limit], padded=padded)


def internal_rows(examples: Examples, padded: bool = True) -> Rows:
    """The task's training examples with their classes."""
    return Rows(examples.texts, examples.rows("train").tolist(), examples.labels, padded)


def loader(
    rows: Rows, tokenizer: PreTrainedTokenizerFast, batch: int, mask_share: float, workers: int = 0
) -> DataLoader[Any]:
    """Shuffled batches, made by the library's collator; by `workers` processes, if any."""
    return DataLoader(
        rows, batch, shuffle=True, drop_last=True, collate_fn=collator(tokenizer, mask_share),
        num_workers=workers, pin_memory=workers > 0, persistent_workers=workers > 0,
    )  # fmt: skip


def collator(tokenizer: PreTrainedTokenizerFast, mask_share: float, multiple: int | None = None) -> Any:
    """The library's collator that masks, or where nothing is masked the one that only pads, to a `multiple`."""
    if mask_share:
        return DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_share, pad_to_multiple_of=multiple)
    return DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)


def endless(batches: DataLoader[Any]) -> Iterator[dict[str, Tensor]]:
    """Batch after batch, epoch after epoch."""
    while True:
        yield from batches


class AuthorsLoop:
    """Joint training, step by step; `run` goes on where it was."""

    def __init__(
        self,
        model: JointModel,
        external: DataLoader[Any] | None,
        internal: DataLoader[Any] | None,
        settings: Train,
        device: torch.device,
        precision: torch.dtype | None = None,
    ) -> None:
        """Without external data every step is internal, without internal none is; `precision` is that of autocast."""
        self.model, self.device, self.settings, self.precision = model, device, settings, precision
        self.external = None if external is None else endless(external)
        self.internal = None if internal is None else endless(internal)
        matrices, others = ([one for one in model.parameters() if (one.ndim > 1) == flag] for flag in (True, False))
        groups = [
            {"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0},
        ]  # fmt: skip
        self.optimizer = torch.optim.AdamW(
            groups, lr=settings.lr, betas=settings.betas, eps=settings.epsilon, fused=True
        )
        self.schedule = get_linear_schedule_with_warmup(  # type: ignore[no-untyped-call]
            self.optimizer, settings.warmup_steps, settings.steps
        )
        self.step = 0

    def run(self, steps: int) -> list[float]:
        """Do so many optimizer steps; their losses."""
        losses = []
        self.model.train()
        for _ in range(steps):
            batch = next(self._source())
            batch = {name: value.to(self.device, non_blocking=True) for name, value in batch.items()}
            with torch.autocast(self.device.type, self.precision, enabled=self.precision is not None):
                loss = self.model(**batch)["loss"]
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad(set_to_none=False)  # as torch 1.9 did
            losses.append(loss.detach())
            self.step += 1
        return [loss.item() for loss in losses]

    def _source(self) -> Iterator[dict[str, Tensor]]:
        rho1 = self.settings.rho1
        is_internal = rho1 != "inf" and (self.step + 1) % (rho1 + 1) == 0
        source = (
            self.internal if self.external is None or (is_internal and self.internal is not None) else self.external
        )
        assert source is not None
        return source
