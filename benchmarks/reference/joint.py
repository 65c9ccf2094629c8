"""The authors' way of both stages, from their description in the paper (section 3.2) and in docs/method.md.

How faithful it is. As described: the library's model; texts padded to the full length when they are tokenized; whole
rows shuffled, batches cut from them; the library's collator masks on the fly; the encoder and both heads run over every
position of every text, logits of the whole vocabulary included; one internal batch after rho1 external ones; AdamW with
linear warm-up and decay; no clipping. Stage 2 is the same loop with the classification loss alone, which the paper
calls rho1 = rho2 = 0. In their favour: rows are ready in memory (theirs are read from Arrow files),
there is no multi-process wrapper around model and loader, attention is the library's fused kernel of today.
Different: the classification head is the one that our model has, run by the library's code, so that both sides train
the same model and their losses can be compared (theirs is linear, GELU, linear on [CLS]: as much work to the eye).

That its losses are ours on equal inputs is held in tests/benchmarks/test_reference_training.py.
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

from tlm.settings import Train
from tlm.training.encoder import Encoder
from tlm.training.examples import Examples
from tlm.training.texts import Texts

CLASSES = "classes"  # how a batch calls the labels of its texts; `labels` are those of its tokens


class JointModel(nn.Module):
    """The library's masked-language model, and the library's classification head on the same encoder."""

    def __init__(self, config: dict[str, Any], rho2: float, normalised: bool = True) -> None:
        super().__init__()
        kinds: dict[str, Any] = {
            "bert": (BertConfig, BertForMaskedLM, BertForSequenceClassification),
            "modernbert": (ModernBertConfig, ModernBertForMaskedLM, ModernBertForSequenceClassification),
        }
        self.kind = config["model_type"]
        config_class, tokens_class, classes_class = kinds[self.kind]
        self.classifier, self.tokens = (made(config_class.from_dict(config)) for made in (classes_class, tokens_class))
        setattr(self.tokens, self.tokens.base_model_prefix, self.classifier.base_model)
        self.tokens.tie_weights()
        self.rho2, self.normalised = rho2, normalised

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
        output = self.classifier.base_model(input_ids, attention_mask=attention_mask)
        class_logits = self._class_logits(output, attention_mask)
        if labels is None:
            return {"loss": F.cross_entropy(class_logits, classes)}  # type: ignore[arg-type]
        mlm = F.cross_entropy(self._token_logits(output.last_hidden_state).flatten(0, 1), labels.flatten())
        if classes is None:
            return {"loss": mlm + 0.0 * class_logits.sum(), "mlm": mlm.detach()}
        ce = F.cross_entropy(class_logits, classes)
        total = self.rho2 * mlm + ce
        return {"loss": total / (self.rho2 + 1) if self.normalised else total, "mlm": mlm.detach(), "ce": ce.detach()}

    def _token_logits(self, states: Tensor) -> Tensor:
        model = self.tokens
        return model.cls(states) if self.kind == "bert" else model.decoder(model.head(states))  # type: ignore[no-any-return]

    def _class_logits(self, output: Any, attention_mask: Tensor) -> Tensor:
        model = self.classifier
        if self.kind == "bert":
            return model.classifier(model.dropout(output.pooler_output))  # type: ignore[no-any-return]
        weights = attention_mask.unsqueeze(-1)
        mean = (output.last_hidden_state * weights).sum(1) / weights.sum(1)
        return model.classifier(model.drop(model.head(mean)))  # type: ignore[no-any-return]

    @torch.no_grad()
    def take(self, ours: Encoder) -> None:
        """Get the weights of a model of ours of the same config."""
        self.classifier.load_state_dict(ours.body.state_dict())
        head = self.tokens.cls.predictions if self.kind == "bert" else self.tokens
        (head.transform if self.kind == "bert" else head.head).load_state_dict(ours.mlm.transform.state_dict())  # type: ignore[union-attr]
        head.decoder.bias.copy_(ours.mlm.bias)


class Rows(Dataset[dict[str, Any]]):
    """Texts as the library's collator takes them, made once: ids with special tokens, cut; padded or not.

    Attributes:
        tokens: How many were taken so far, padding left out.
    """

    def __init__(self, texts: Texts, rows: list[int], labels: Any = None, padded: bool = True) -> None:
        """`labels` are class ordinals by row of `texts`, or None."""
        self.tokens, self.lengths = 0, texts.lengths[rows].tolist()
        self.features = [_feature(texts, row, padded) for row in rows]
        if labels is not None:
            for feature, row in zip(self.features, rows, strict=True):
                feature[CLASSES] = int(labels[row])

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, place: int) -> dict[str, Any]:
        self.tokens += self.lengths[place]
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


def loader(rows: Rows, tokenizer: PreTrainedTokenizerFast, batch: int, mask_share: float) -> DataLoader[Any]:
    """Shuffled batches, made by the library's collator."""
    return DataLoader(rows, batch, shuffle=True, drop_last=True, collate_fn=collator(tokenizer, mask_share))


def collator(tokenizer: PreTrainedTokenizerFast, mask_share: float) -> Any:
    """The library's collator that masks, or where nothing is masked the one that only pads."""
    if mask_share:
        return DataCollatorForLanguageModeling(tokenizer, mlm_probability=mask_share)
    return DataCollatorWithPadding(tokenizer)


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
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay
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
            batch = {name: value.to(self.device) for name, value in batch.items()}
            with torch.autocast(self.device.type, self.precision, enabled=self.precision is not None):
                loss = self.model(**batch)["loss"]
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            losses.append(loss.item())
            self.step += 1
        return losses

    def _source(self) -> Iterator[dict[str, Tensor]]:
        rho1 = self.settings.rho1
        is_internal = rho1 != "inf" and (self.step + 1) % (rho1 + 1) == 0
        source = (
            self.internal if self.external is None or (is_internal and self.internal is not None) else self.external
        )
        assert source is not None
        return source
