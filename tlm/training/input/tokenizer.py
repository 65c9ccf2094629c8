"""The step `tokenizer`: one vocabulary for all arms, so that their losses can be compared."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.digest import file_sha256
from tlm.artifacts.home import home
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.corpus_reader import sample as passages_sample
from tlm.data.tasks.labelled import UNLABELLED
from tlm.data.tasks.reading import examples
from tlm.errors import InputError, nearest, reason
from tlm.training.input.vocabulary import SPECIAL, adopt_vocabulary, save_vocabulary, tokenizer_file, train_vocabulary
from tlm.training.model.located import HERE, model_folder

VERSION = 1
SMALLEST = {"wordpiece": 200, "bpe": 300}  # about what single characters and special tokens need


def build_tokenizer(
    corpus: str,
    task: str,
    *,
    kind: Literal["wordpiece", "bpe"] = "wordpiece",
    vocab_size: int = 6000,
    sample: int = 50_000,
    lower_case: bool = True,
    existing: str = "",
    more_tasks: list[str] = (),  # type: ignore[assignment]
    root: str | None = None,
) -> str:
    """Make a vocabulary from a sample of the corpus and the training texts of the task, or adopt an existing one.

    Dev and test texts are not used.

    Args:
        corpus: URI of the corpus, or of a subset where there is no corpus, as with an imported one.
        task: URI of the task.
        kind: wordpiece (as BERT) or bpe (byte-level, as RoBERTa).
        vocab_size: Entries, special tokens included. A small corpus may give fewer.
        sample: How many passages of the corpus to learn from.
        lower_case: Fold case.
        existing: A tokenizer.json, a folder that has one, or a model of the Hugging Face Hub (bert-base-uncased),
            to use instead. The settings above then have no effect.
        more_tasks: URIs of further tasks to learn from, where tasks are trained together.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    general = Artifact.open(corpus, "corpus", "subset")
    sources = {general.manifest.kind: general, "task": Artifact.open(task, "task")}
    sources |= {f"task-{number}": Artifact.open(uri, "task") for number, uri in enumerate(more_tasks, start=1)}
    root = home(root, sources.values()).root
    if existing:
        with model_folder(existing, of_tokenizers=True) as folder:
            return adopt_tokenizer(folder, root)
    if kind not in SMALLEST:
        raise InputError(f"kind '{kind}' is unknown{nearest(kind, SMALLEST)}")
    if vocab_size < SMALLEST[kind]:
        raise InputError(f"vocab_size is {vocab_size}; expected at least {SMALLEST[kind]} for {kind}")
    if sample < 0:
        raise InputError(f"sample is {sample}; expected 0 (the task's training texts alone) or more passages")
    settings = {"kind": kind, "vocab_size": vocab_size, "sample": sample, "lower_case": lower_case}
    recipe = Recipe("tokenizer", "tokenizer", VERSION, settings=settings, inputs=sources)
    return produce(recipe, root, _train, sources, kind, vocab_size, sample, lower_case)


def _train(
    draft: Draft, sources: dict[str, Artifact], kind: str, vocab_size: int, sample: int, lower_case: bool
) -> None:
    corpus, *tasks = sources.values()
    texts = [*passages_sample(corpus, sample), *chain.from_iterable(map(_train_split, tasks))]
    tokenizer = train_vocabulary(kind, texts, vocab_size, lower_case)
    _write(draft, tokenizer, SPECIAL, kind, lower_case)
    draft.counts["texts"] = len(texts)


def adopt_tokenizer(path: Path, root: str | None) -> str:
    """Make a `tokenizer` artifact from a ``tokenizer.json`` or a model's folder; returns its URI."""
    with TemporaryDirectory(prefix="tlm-tokenizer-") as scratch:
        old = (path / "config.json").exists() and not (path / "tokenizer.json").exists()
        file = _converted(path, Path(scratch)) if old else path
        tokenizer, special, between = adopt_vocabulary(file)
        more = {"between": between} if between > 1 else {}
        settings = {"existing": file_sha256(tokenizer_file(file)), **more}
        recipe = Recipe("tokenizer", "tokenizer", VERSION, settings=settings)

        def write(draft: Draft) -> None:
            kind = json.loads(tokenizer.to_str())["model"]["type"].lower()
            lower_case = tokenizer.normalizer is not None and tokenizer.normalizer.normalize_str("A") == "a"
            _write(draft, tokenizer, special, kind, lower_case)
            draft.details |= more

        return produce(recipe, root, write)


def _converted(folder: Path, scratch: Path) -> Path:
    """A ``tokenizer.json`` made from an older model's files: vocab.txt, or vocab.json and merges.txt."""
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(folder, **HERE)
        text = found.backend_tokenizer.to_str()
    except Exception as error:  # the library raises many kinds
        raise InputError(f"{folder} has no readable tokenizer ({reason(error)}); add a tokenizer.json") from None
    file = scratch / "tokenizer.json"
    file.write_text(text, encoding="utf-8")
    return file


def _write(draft: Draft, tokenizer: Tokenizer, special: dict[str, str], kind: str, lower_case: bool) -> None:
    save_vocabulary(tokenizer, special, draft.folder / "tokenizer")
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    ids = {f"{role}_id": tokenizer.token_to_id(token) for role, token in special.items()}
    draft.details = {"kind": kind, "vocab_size": size, "lower_case": lower_case, **ids}
    draft.counts["vocab_size"] = size


def _train_split(task: Artifact) -> Iterator[str]:
    table = examples(task)
    train = table.filter(pc.is_in(table["split"], pa.array(["train", UNLABELLED])))
    for column in ("text", "text_pair"):
        yield from (text for text in train[column].to_pylist() if text is not None)
