"""What the row `selectors` tells of each subset."""

import re

from research.benchmarks.selectors import OTHERS, of_task
from tests.tiny import write_tiny
from tlm.data.corpus.load import load_corpus
from tlm.settings.options import Layout
from tlm.settings.selectors import RERANKED


def test_each_subset_is_compared_with_every_other(tmp_path):
    write_tiny(tmp_path)
    root = str(tmp_path / "root")
    corpus = load_corpus([str(tmp_path / "corpus.jsonl")], layout=Layout(source_field="source"), root=root)
    found = of_task(corpus, tmp_path / "task", 0.0, root, judge="tiny")
    arms = ["bm25", *OTHERS, RERANKED]
    assert [one.label.split(", ")[-1] for one in found] == arms
    counts = {arm: one.note.split()[0] for arm, one in zip(arms, found, strict=True)}
    shares = {
        arm: {other: share for share, other in re.findall(r"(\d+%) of (\w+)'s", one.note)}
        for arm, one in zip(arms, found, strict=True)
    }
    for arm in arms:
        assert list(shares[arm]) == [other for other in arms if other != arm]
        for other in shares[arm]:  # subsets of the same size have as much of each other
            assert counts[arm] != counts[other] or shares[arm][other] == shares[other][arm]
