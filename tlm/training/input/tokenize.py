"""The step `tokenize`: texts as token ids in files to be memory-mapped, made once for all arms and seeds."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from tokenizers import Tokenizer

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.marks import Marks, find_marks, with_spans_first
from tlm.data.passages import passages
from tlm.data.ranges import GrowingArray
from tlm.data.tasks.examples import examples
from tlm.progress import Meter, say
from tlm.settings import presets

VERSION = 1
BATCH = 2048
MUCH_UNKNOWN = 0.01  # of a task's tokens


def tokenize(data: str, tokenizer: str, *, spans_first: bool = False, root: str | None = None) -> str:
    """Turn the texts of a task or a subset into token ids, without special tokens and uncut.

    Args:
        data: URI of the task or the subset.
        tokenizer: URI of the tokenizer.
        spans_first: Put marked spans in front of the texts of a task (`model.spans_first`). The marks are found in
            the training texts; of a pair, only first texts are looked at.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    source = Artifact.open(data, "task", "subset")
    vocabulary = Artifact.open(tokenizer, "tokenizer")
    settings = {"spans_first": True} if spans_first and source.manifest.kind == "task" else {}
    inputs = {"tokenizer": vocabulary, "data": source}
    return produce(Recipe("tokens", "tokenize", VERSION, settings, inputs), root, _write, source, vocabulary, settings)


def tokens_for(checkpoint: Artifact, task: Artifact, root: str | None) -> Artifact:
    """Find or make the tokens of a task with the vocabulary and settings that a checkpoint was trained with."""
    own = checkpoint.input("task_tokens")
    return Artifact.open(tokenize(task.uri, own.input("tokenizer").uri, **own.manifest.settings, root=root))


def tokenize_all(
    data: Iterable[str], tokenizer: str, *, preset: str, overrides: Sequence[str], root: str | None
) -> None:
    """Tokenize tasks and subsets ahead of stage 1, as it does with this preset and these overrides."""
    spans_first = presets.resolve(preset, overrides).model.spans_first
    for uri in data:
        tokenize(uri, tokenizer, spans_first=spans_first, root=root)


def _write(draft: Draft, source: Artifact, vocabulary: Artifact, settings: dict[str, bool]) -> None:
    kind = source.manifest.kind
    encoder = Tokenizer.from_file(str(vocabulary.path("tokenizer") / "tokenizer.json"))
    size = int(vocabulary.details["vocab_size"])
    columns = {"text": ""}
    if kind == "task" and source.details["pair"]:
        columns["text_pair"] = "pair_"
    marks: Marks = ()
    if settings:
        table = examples(source)
        marks = find_marks(table.filter(pc.equal(table["split"], "train"))["text"].to_pylist())
    rows = tokens = 0
    for column, prefix in columns.items():
        texts = _texts(source, column, marks if column == "text" else ())
        rows, added = _write_column(draft.folder, prefix, texts, encoder, size)
        tokens += added
    if kind == "task":
        _warn_of_unknown(np.load(draft.folder / "ids.npy"), vocabulary.details["unk_id"], vocabulary)
    draft.counts = {"rows": rows, "tokens": tokens}
    draft.details = {"of": kind, **draft.counts, "vocab_size": size, "pair": len(columns) == 2}
    draft.details["tokenizer"] = vocabulary.content
    if settings:
        draft.details["marks"] = [list(pair) for pair in marks]


def _warn_of_unknown(ids: NDArray[Any], unknown: int, vocabulary: Artifact) -> None:
    """Warn where a text has letters that its vocabulary of word pieces had no room for, or others left out."""
    share = float((ids == unknown).mean()) if len(ids) else 0.0
    if share <= MUCH_UNKNOWN:
        return
    advice = "has too few letters of the script; set tokenizer.kind=bpe, which knows every letter"
    if "existing" in vocabulary.manifest.settings or vocabulary.manifest.step == "trim-vocabulary":
        advice = "others made; take a published model that knows the texts' script and signs"
    say(f"warning: {share:.0%} of the task's tokens are unknown to the vocabulary, which {advice}")


def _write_column(
    folder: Path, prefix: str, texts: Iterator[list[str]], encoder: Tokenizer, vocab_size: int
) -> tuple[int, int]:
    """Write ``ids.npy`` and ``offsets.npy``; returns (rows, tokens)."""
    width = np.uint16 if vocab_size <= np.iinfo(np.uint16).max else np.uint32
    meter = Meter("tokenize", unit="texts")
    with (
        GrowingArray(folder / f"{prefix}ids.npy", width) as ids,
        GrowingArray(folder / f"{prefix}offsets.npy", np.int64) as offsets,
        closing(meter),
    ):
        offsets.append(np.zeros(1, dtype=np.int64))
        for batch in texts:
            encoded = [encoding.ids for encoding in encoder.encode_batch_fast(batch, add_special_tokens=False)]
            lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
            offsets.append(ids.rows + np.cumsum(lengths))
            ids.append(np.fromiter(chain.from_iterable(encoded), dtype=width, count=int(lengths.sum())))
            meter.advance(len(batch))
        return offsets.rows - 1, ids.rows


def _texts(source: Artifact, column: str, marks: Marks) -> Iterator[list[str]]:
    """The texts in row order, in small batches because encodings are large. A missing second text is empty.

    The spans between `marks` are put in front of each text.
    """
    of_task = source.manifest.kind == "task"
    batches: Iterable[Any] = examples(source).select([column]).to_batches() if of_task else passages(source, [column])
    for batch in batches:
        for start in range(0, batch.num_rows, BATCH):
            texts = batch.column(0).slice(start, BATCH).to_pylist()
            yield [with_spans_first(text or "", marks) for text in texts]
