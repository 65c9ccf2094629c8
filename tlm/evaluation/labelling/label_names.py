"""The step `label-names`: a first model without labels, made of the names of the classes and what they mean."""

import numpy as np

from tlm.artifacts.artifact import Artifact
from tlm.artifacts.produce import Draft, Recipe, produce
from tlm.data.passages import rows_at
from tlm.data.reading.files import RawFile, raw_files
from tlm.data.reading.readers import check, read_all
from tlm.data.reading.records import Record, Rejects, text_of
from tlm.errors import InputError
from tlm.retrieval.search.index import open_engine
from tlm.settings.options import Range
from tlm.settings.sections import MOST_HITS

VERSION = 1
SHARPNESS = 10.0  # of the probabilities: cosines of texts and classes are mostly less than 0.3 apart


def label_names(index: str, names: str, *, top_k: int = 1000, root: str | None = None) -> str:
    """Make a model of label names, without a labelled text: it answers with the class whose passages are nearest.

    The description of each class retrieves passages. Static word vectors are learned from all of them, and a class is
    the mean of its passages. The model is a static one, for `predict`, `serve`, `evaluate` and `label-next`.

    Args:
        index: URI of the index.
        names: File with the fields `label` and `text` (jsonl, csv, tsv, parquet): a description of a class, or words
            that its texts have. Several rows of a label are joined.
        top_k: Passages of each class.
        root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
    """
    source = Artifact.open(index, "index")
    Range(f"1 to {MOST_HITS} passages per class", 1, MOST_HITS).check("top_k", top_k)
    about = _read(names)
    recipe = Recipe("model", "label-names", VERSION, {"names": about, "top_k": top_k}, {"index": source})
    return produce(recipe, root, _write, source, about, top_k)


def _read(names: str) -> dict[str, str]:
    """The description of each class. Raises InputError: fewer than two classes, or a row that cannot be used."""
    found, rejects = dict[str, str](), Rejects(0)
    with raw_files([names]) as files:
        for file in files:
            check(file, ("label", "text"))
        for label, text in read_all(files, ("label", "text"), rejects, _row):
            found[label] = f"{found[label]} {text}" if label in found else text
    rejects.check()
    if len(found) < 2:
        raise InputError(f"{names} has {len(found)} label; expected a row with label and text for each of two or more")
    return dict(sorted(found.items()))


def _row(file: RawFile, row: Record) -> tuple[str, str]:
    return text_of(row.values, "label"), text_of(row.values, "text")


def _write(draft: Draft, index: Artifact, about: dict[str, str], top_k: int) -> None:
    from tlm.shallow.features import words_of
    from tlm.shallow.linear import Dense, Linear
    from tlm.shallow.models import one_thread
    from tlm.shallow.static import StaticModel, vectors_of

    hits = [docs.tolist() for docs, _ in open_engine(index).search(list(about.values()), top_k)]
    rows = rows_at(index.input("corpus"), "passages-*.parquet", {doc for docs in hits for doc in docs})
    for label, docs in zip(about, hits, strict=True):
        if not docs:
            raise InputError(f"no passage has a word of the description of '{label}'; describe it in other words")
    with one_thread():
        vectors = vectors_of((row["text"] for row in rows.values()), (), ())
        means = [vectors.means([words_of(rows[doc]["text"]) for doc in docs]).mean(axis=0) for docs in hits]
    weights = SHARPNESS * np.stack(means) / np.linalg.norm(means, axis=1, keepdims=True)
    linear = Linear(weights, np.zeros(len(about)), len(about), softmax=True)
    width, chosen = weights.shape[1], {"top_k": top_k}
    dense = Dense(np.zeros(width), np.ones(width), linear, chosen)
    StaticModel(list(about), (), dense, False, vectors).write(draft.folder / "model")
    draft.details = {"arm": "label-names", "seed": 0, "stage": "label-names", "fixed": True, "parameters": weights.size}
    draft.details |= {"cost": {}, "chosen": chosen, "tried": 0}
    draft.counts = {"labels": len(about), "passages": len(rows)}
