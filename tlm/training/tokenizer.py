"""The step `tokenizer`: one vocabulary for all arms, so that their losses compare."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.compute as pc
from tokenizers import Tokenizer

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import file_sha256
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus import passages
from tlm.data.task import examples
from tlm.errors import InputError, nearest
from tlm.training.vocabulary import SPECIAL, adopt_vocabulary, save_vocabulary, tokenizer_file, train_vocabulary

VERSION = 1
KINDS = ("wordpiece", "bpe")
SMALLEST = {"wordpiece": 200, "bpe": 300}  # single characters and special tokens alone need about as many


def build_tokenizer(
    corpus: str,
    task: str,
    *,
    kind: Literal["wordpiece", "bpe"] = "wordpiece",
    vocab_size: int = 6000,
    sample: int = 50_000,
    lower_case: bool = True,
    existing: str = "",
    root: str | None = None,
) -> str:
    """Make a vocabulary from a sample of the corpus and the training split of the task, or adopt an existing one.

    Dev and test texts are never looked at.

    Args:
        corpus: URI of the corpus.
        task: URI of the task.
        kind: wordpiece (as BERT) or bpe (byte-level, as RoBERTa).
        vocab_size: Entries, special tokens included; small texts may give fewer.
        sample: Passages of the corpus to learn from.
        lower_case: Fold case.
        existing: A tokenizer.json, or a folder that has one, to use instead; the settings above then do nothing.
        root: Where artifacts are kept.
    """
    sources = {"corpus": Artifact.open(corpus, "corpus"), "task": Artifact.open(task, "task")}
    if existing:
        file = tokenizer_file(Path(existing))
        adopted = Recipe("tokenizer", "tokenizer", VERSION, settings={"existing": file_sha256(file)})
        return produce(adopted, root, lambda draft: _adopt(draft, file))
    if kind not in KINDS:
        raise InputError(f"kind '{kind}' is unknown{nearest(kind, KINDS)}")
    if vocab_size < SMALLEST[kind]:
        raise InputError(f"vocab_size is {vocab_size}; expected at least {SMALLEST[kind]} for {kind}")
    if sample < 0:
        raise InputError(f"sample is {sample}; expected 0 (the task's training texts alone) or more passages")
    settings = {"kind": kind, "vocab_size": vocab_size, "sample": sample, "lower_case": lower_case}
    recipe = Recipe("tokenizer", "tokenizer", VERSION, settings=settings, inputs=sources)
    return produce(recipe, root, lambda draft: _train(draft, sources, kind, vocab_size, sample, lower_case))


def _train(
    draft: Draft, sources: dict[str, Artifact], kind: str, vocab_size: int, sample: int, lower_case: bool
) -> None:
    texts = [*_corpus_sample(sources["corpus"], sample), *_train_split(sources["task"])]
    tokenizer = train_vocabulary(kind, texts, vocab_size, lower_case)
    _write(draft, tokenizer, SPECIAL, kind, lower_case)
    draft.counts["texts"] = len(texts)


def _adopt(draft: Draft, file: Path) -> None:
    tokenizer, special = adopt_vocabulary(file)
    kind = json.loads(tokenizer.to_str())["model"]["type"].lower()
    lower_case = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
    _write(draft, tokenizer, special, kind, lower_case)


def _write(draft: Draft, tokenizer: Tokenizer, special: dict[str, str], kind: str, lower_case: bool) -> None:
    save_vocabulary(tokenizer, special, draft.folder / "tokenizer")
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = {f"{role}_id": tokenizer.token_to_id(token) for role, token in special.items()}
    draft.details = {"kind": kind, "vocab_size": size, "lower_case": lower_case, **ids}
    draft.counts["vocab_size"] = size


def _corpus_sample(corpus: Artifact, sample: int) -> Iterator[str]:
    """`sample` passages, evenly spread by a fixed seed, in the order of the corpus."""
    total = int(corpus.details["passages"])
    taken = np.zeros(total, dtype=bool)
    taken[np.random.default_rng(0).choice(total, min(sample, total), replace=False)] = True
    start = 0
    for batch in passages(corpus, ["text"]):
        rows = np.flatnonzero(taken[start : start + batch.num_rows])
        start += batch.num_rows
        yield from batch.column(0).take(rows).to_pylist()


def _train_split(task: Artifact) -> Iterator[str]:
    table = examples(task)
    train = table.filter(pc.equal(table["split"], "train"))
    for column in ("text", "text_pair"):
        yield from (text for text in train[column].to_pylist() if text is not None)
