"""RAKE, rapid automatic keyword extraction, which makes queries of long texts (Rose, Engel, Cramer and Cowley 2010,
"Automatic keyword extraction from individual documents").

Candidates are the runs of words between stop words and punctuation. A word's degree is the total length of the
candidate occurrences that contain it; its score is its degree over its frequency. A candidate's score is the sum over
its words. The best candidates are the keywords, a third as many as there are distinct words in all candidates. The
paper's step of joining keywords across interior stop words ("axis of evil") is left out: a query is a bag of words and
has these words already.
"""

import re
from collections import Counter
from functools import lru_cache
from importlib.resources import files
from itertools import groupby

_BREAK = re.compile(r"[^\w\s'-]+|\s[-']+\s|_+")
_WORD = re.compile(r"\w+(?:['-]\w+)*")


def keywords(text: str) -> list[tuple[str, float]]:
    """Extract the keywords of `text`, lower-cased, with their scores: best first, equal ones in order of appearance.

    There are none if `text` has only stop words and punctuation.
    """
    candidates = _candidates(text)
    frequency = Counter(word for candidate in candidates for word in candidate)
    degree: Counter[str] = Counter()
    for candidate in candidates:
        for word in candidate:
            degree[word] += len(candidate)
    scores = {candidate: sum(degree[word] / frequency[word] for word in candidate) for candidate in candidates}
    best = sorted(scores, key=lambda candidate: -scores[candidate])[: max(1, len(frequency) // 3)]
    return [(" ".join(candidate), scores[candidate]) for candidate in best]


def _candidates(text: str) -> list[tuple[str, ...]]:
    """The runs of words other than stop words, in order, with repetitions."""
    phrases = _BREAK.split(text.lower().replace("’", "'"))
    runs = (run for phrase in phrases for run in groupby(_WORD.findall(phrase), _stop_words().__contains__))
    return [tuple(words) for are_stop_words, words in runs if not are_stop_words]


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    lines = files("tlm.retrieval.search").joinpath("stop_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
