"""The subsets of the arms: BM25's, and for each other arm as many passages, chosen in its own way, by its seed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode

from tlm.artifacts.artifact import Artifact
from tlm.options import Filters
from tlm.retrieval.search.retrieve import retrieve
from tlm.retrieval.subset.export import export
from tlm.retrieval.subset.merge import merge_subsets

TASK_ONLY = "task-only"


class Arm(NamedTuple):
    """What the text of an arm is chosen by. `str` writes it as a URL query, to be passed to a step of a pipeline.

    Attributes:
        name: bm25, task-only, or another arm of `retrieve`.
        task: URI of the task.
        like: URI of BM25's subset.
        seed: Seed of what is drawn; 0 for an arm that has the same text with every seed.
    """

    name: str
    task: str
    like: str
    seed: int = 0

    def __str__(self) -> str:
        return urlencode(self._asdict())

    @classmethod
    def parse(cls, text: str) -> "Arm":
        """Return the arm that `str` wrote as `text`."""
        values = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=True))
        return cls(**{**values, "seed": int(values["seed"])})  # type: ignore[arg-type]

    def subset(self, filters: Filters = Filters(), root: str | None = None) -> str:
        """Return the URI of the subset, chosen and filtered as BM25's was, and as large; "" for task-only.

        Args:
            filters: Those of BM25's subset.
            root: Store to write to, which holds all inputs; by default TLM_ROOT, else the store of the inputs.
        """
        if self.name in ("bm25", TASK_ONLY):
            return self.like if self.name == "bm25" else ""
        found = Artifact.open(self.like, "subset").input("hits")
        asked = {name: found.details[name] for name in ("query", "top_k")} | {"seed": self.seed}
        hits = retrieve(found.input("index").uri, self.task, arm=self.name, like=self.like, **asked, root=root)  # type: ignore[arg-type]
        return export(hits, filters=filters, root=root)


def task_subsets(
    index: str,
    tasks: Sequence[str],
    filters: Filters,
    *,
    query: Literal["full", "rake", "auto"],
    top_k: int,
    root: str | None = None,
) -> list[str]:
    """Retrieve and export a subset for each task. Returns the URI of their union, then theirs."""
    found = [retrieve(index, task, query=query, top_k=top_k, root=root) for task in tasks]
    own = [export(hits, filters=filters, root=root) for hits in found]
    return [merge_subsets(own, filters=replace(filters, min_words=0), root=root), *own]  # short ones are gone already


def seed_of(subset: Artifact) -> int:
    """The seed that a subset of an arm was drawn by; 0 for one that is the same with every seed."""
    return int(subset.input("hits").manifest.settings.get("seed", 0)) if "hits" in subset.manifest.inputs else 0
