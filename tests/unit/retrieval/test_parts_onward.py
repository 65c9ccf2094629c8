"""What is made of a corpus in parts: the same hits, subset, vocabulary and tokens as of one that was loaded whole."""

from pathlib import Path

import pytest

from tests.searchable import task_of
from tests.unit.data.test_parts import files, left, load, same
from tlm.artifacts.artifact import Artifact
from tlm.retrieval.retrieve import retrieve
from tlm.retrieval.search.index import build_index
from tlm.retrieval.subset.export import export
from tlm.training.input.tokenize import tokenize
from tlm.training.input.tokenizer import build_tokenizer


@pytest.fixture(autouse=True)
def whole_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a part may be here."""
    monkeypatch.setattr("tlm.data.corpus.plan.can_be_cut", lambda file: False)


def onward(corpus: Artifact, root: Path) -> dict[str, str]:
    """Key and content of what the next steps make of a corpus, by kind."""
    task = task_of(["text of colour 3", "number 4 of taste 2"], str(root))
    hits = retrieve(build_index(corpus.uri, root=str(root)), task, top_k=20, root=str(root))
    subset = export(hits, root=str(root))
    tokenizer = build_tokenizer(corpus.uri, task, vocab_size=200, root=str(root))
    made = map(Artifact.open, (hits, subset, tokenizer, tokenize(subset, tokenizer, root=str(root))))
    return {one.manifest.kind: f"{one.manifest.key} {one.content}" for one in made}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("size", [1, 900])
def test_all_that_follows_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, processes: int
) -> None:
    """One part ends with no rows because none can be used, another because all were in parts before it."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", f"{processes}")
    texts = [[f"text {number % 7} of colour {file} and taste {number}" for number in range(12)] for file in range(4)]
    folder = files(tmp_path / "in", texts[0], texts[1], ["", None, ""], texts[2], texts[0], texts[3])
    stores = tmp_path / "one", tmp_path / "several"
    one, several = load(folder, stores[0]), load(folder, stores[1], size=size)
    same(one, several)
    assert several.counts["rejected"] == {"empty": 2, "null": 1}
    made = onward(one, stores[0])
    assert onward(several, stores[1]) == made
    assert set(made) == {"hits", "subset", "tokenizer", "tokens"}
    assert not left(stores[1])
