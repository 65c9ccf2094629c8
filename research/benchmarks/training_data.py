"""The data of the training rows: a task and the text retrieved for it, made by the product's own steps.

The demo's task and corpus, which anybody can make; or SciERC and its corpus where ``TLM_DEV_DATA`` names their folder.
Finished steps are found again in ``build/benchmarks``, or where ``TLM_BENCHMARK_ROOT`` says.
"""

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from research.benchmarks.row import NotMeasured
from tlm.artifacts.artifact import Artifact
from tlm.settings.options import Layout

EVERY = 8  # quick: every eighth service and document


def folder() -> Path:
    """The folder of what benchmarks make; created if it is not there."""
    path = Path(os.environ.get("TLM_BENCHMARK_ROOT", "build/benchmarks"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def given_data(quick: bool) -> Path | None:
    """The folder with corpus and tasks that ``TLM_DEV_DATA`` names; None in a quick run."""
    name = os.environ.get("TLM_DEV_DATA")
    return Path(name) if name and not quick else None


def dev_data(quick: bool, why: str = "it takes an hour") -> Path:
    """The folder with corpus and tasks that ``TLM_DEV_DATA`` names. Raises `NotMeasured`: `why` in a quick run."""
    data = given_data(quick)
    if data is None:
        raise NotMeasured(why if quick else "name a folder with corpus and tasks: TLM_DEV_DATA")
    return data


def mixed_corpus(data: Path, root: str) -> str:
    """Load the corpus of that folder."""
    from tlm.data.corpus.load import load_corpus

    return load_corpus([str(data / "mixed-corpus.jsonl.zst")], layout=Layout(source_field="s"), root=root)


@dataclass(frozen=True)
class Material:
    """URIs of a task and the texts for it; `told` says in words where they are from."""

    task: str
    tokenizer: str
    subset: str
    told: str

    @cached_property
    def task_tokens(self) -> Artifact:
        """The task's texts as token ids."""
        return self._tokens(self.task)

    @cached_property
    def subset_tokens(self) -> Artifact:
        """The passages as token ids."""
        return self._tokens(self.subset)

    def _tokens(self, data: str) -> Artifact:
        from tlm.training.input.tokenize import tokenize

        return Artifact.open(tokenize(data, self.tokenizer, root=str(folder() / "store")))


def demo_files(quick: bool) -> Path:
    """The demo's data folder, written if it is not there; `quick`: a small part of it."""
    from demo.__main__ import write

    data = folder() / ("demo-small" if quick else "demo")
    if not (data / "api-errors" / "test.jsonl").exists():
        write(data, task="api-errors", every=EVERY if quick else 1)
    return data


@lru_cache(1)
def prepare(quick: bool, vocab_size: int = 6000) -> Material:
    """Load, index, retrieve (K = 50) and export, as a run does, with the steps' own defaults."""
    from tlm.data.corpus.load import load_corpus
    from tlm.data.tasks.task import load_task
    from tlm.retrieval.retrieve import retrieve
    from tlm.retrieval.search.index import build_index
    from tlm.retrieval.subset.export import export
    from tlm.training.input.tokenizer import build_tokenizer

    root = str(folder() / "store")
    given = given_data(quick)
    if given is not None:
        corpus_file, task_folder, source, words = given / "mixed-corpus.jsonl.zst", given / "scierc", "s", 100
        told = "SciERC and BM25's passages for it from 320,000 passages of 30 domains (`TLM_DEV_DATA`)"
    else:
        data = demo_files(quick)
        corpus_file, task_folder, source, words = data / "corpus.jsonl.gz", data / "api-errors", "source", 64
        told = "the demo's task and BM25's passages for it (`python -m demo`)"
    corpus = load_corpus([str(corpus_file)], layout=Layout(source_field=source, words=words), root=root)
    task = load_task(str(task_folder), root=root)
    hits = retrieve(build_index(corpus, root=root), task, top_k=50, root=root)
    tokenizer = build_tokenizer(corpus, task, vocab_size=vocab_size, root=root)
    return Material(task, tokenizer, export(hits, root=root), told)
