"""Tiny published models: random weights and a vocabulary of the toys' words, written as `transformers` writes them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaTokenizer,
)

SHAPE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
}  # fmt: skip


def write_bert(folder: Path, words: list[str], positions: int = 64, **config: Any) -> PreTrainedModel:
    """BERT with a vocabulary of words and letters; its weights are larger than fresh ones, so that nothing is equal."""
    shape = {**SHAPE, "vocab_size": _write_words(folder, words), "max_position_embeddings": positions, **config}
    return _write(folder, BertForMaskedLM(BertConfig(**shape)))


def write_modernbert(folder: Path, words: list[str]) -> PreTrainedModel:
    """ModernBERT with the same vocabulary; its first layer attends globally, its second one to what is near."""
    ids = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    shape = {**SHAPE, "vocab_size": _write_words(folder, words), "max_position_embeddings": 64, **ids}
    return _write(folder, ModernBertForMaskedLM(ModernBertConfig(**shape, classifier_pooling="mean")))


def _write_words(folder: Path, words: list[str]) -> int:
    """Write a vocabulary of words and letters; returns its size."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = [*letters, *(f"##{letter}" for letter in letters)]
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*words} - {*letters}), *pieces]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return len(entries)


def write_roberta(folder: Path, texts: list[str], positions: int = 64) -> PreTrainedModel:
    """RoBERTa: byte-level BPE, two separators in a pair, no token types, positions counted from the padding's id on."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary = ByteLevelBPETokenizer()
    vocabulary.train_from_iterator(texts, vocab_size=320, special_tokens=special, show_progress=False)
    folder.mkdir(parents=True)
    vocabulary.save_model(str(folder))
    RobertaTokenizer.from_pretrained(folder).save_pretrained(folder)
    size = vocabulary.get_vocab_size()
    config = {"vocab_size": size, "max_position_embeddings": positions + 2, "type_vocab_size": 1, "pad_token_id": 1}
    return _write(folder, RobertaForMaskedLM(RobertaConfig(**SHAPE, **config, layer_norm_eps=1e-5)))


def _write(folder: Path, model: PreTrainedModel) -> PreTrainedModel:
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=chance))
    model.save_pretrained(folder)
    model.eval()  # type: ignore[no-untyped-call]
    return model
