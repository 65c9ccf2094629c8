"""What the data steps write, to the byte: a change of it must raise the step's version, and these values with it.

The values belong to the locked versions of pyarrow and tokenizers: other releases write other bytes.
"""

from pathlib import Path

from tests.tiny import write_tiny
from tlm.artifacts.artifact import Artifact
from tlm.data.corpus.load import load_corpus
from tlm.data.tasks.task import load_task
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import build_tokenizer

CONTENT = {
    "corpus": "1285c6e9c7862d81",
    "task": "a7ed53994a7a0465",
    "index": "e5e1480d20ed6e95",
    "hits": "ff87ba4a93ccef04",
    "subset": "3d09260149ee2a36",
    "tokenizer": "2e97207395b67409",
    "tokens": "1366e6344c9cc2ce",
}


def test_the_data_steps_write_what_they_wrote(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data")
    root = str(tmp_path / "store")
    made = {"corpus": load_corpus([str(tmp_path / "data" / "corpus.jsonl")], root=root)}
    made["task"] = load_task(str(tmp_path / "data" / "task"), root=root)
    made["index"] = build_index(made["corpus"], root=root)
    made["hits"] = retrieve(made["index"], made["task"], top_k=5, root=root)
    made["subset"] = export(made["hits"], root=root)
    made["tokenizer"] = build_tokenizer(made["corpus"], made["task"], vocab_size=300, root=root)
    made["tokens"] = tokenize(made["subset"], made["tokenizer"], root=root)
    assert {name: Artifact.open(uri).content[:16] for name, uri in made.items()} == CONTENT
