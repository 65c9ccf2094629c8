"""RAKE, rapid automatic keyword extraction, which makes queries of long texts (Rose, Engel, Cramer and Cowley 2010,
"Automatic keyword extraction from individual documents").

Candidates are the runs of words between stop words and punctuation. A word's degree is the total length of the
candidate occurrences that contain it; its score is its degree over its frequency. A candidate's score is the sum over
its words. The best candidates are the keywords, a third as many as there are distinct words in all candidates.

Stop words are English; in other languages only punctuation ends a candidate. In scripts without spaces between words
(Han, Thai, …) each letter is a word. The paper's step of joining keywords across interior stop words ("axis of evil")
is left out: a query is a bag of words and has these words already.
"""

from collections import Counter
from functools import lru_cache
from importlib.resources import files
from itertools import groupby

import regex

from tlm.data.text import MARKS, word_pattern

_PART = word_pattern()
_BREAK = regex.compile(rf"[^\p{{L}}\p{{N}}{MARKS}\s'-]+|\s[-']+\s", regex.V1)
_WORD = regex.compile(rf"([\s'-]*)({_PART}(?:['-]{_PART})*)", regex.V1)  # with what stands before it


def keywords(text: str) -> list[tuple[str, float]]:
    """Extract the keywords of `text`, lower-cased, with their scores: best first, equal ones in order of appearance.

    There are none if `text` has only stop words and punctuation.
    """
    candidates = _candidates(text)
    frequency = Counter(word for _, words in candidates for word in words)
    degree: Counter[str] = Counter()
    for _, words in candidates:
        for word in words:
            degree[word] += len(words)
    scores = {candidate: sum(degree[word] / frequency[word] for word in words) for candidate, words in candidates}
    best = sorted(scores, key=lambda candidate: -scores[candidate])[: max(1, len(frequency) // 3)]
    return [(candidate, scores[candidate]) for candidate in best]


def _candidates(text: str) -> list[tuple[str, list[str]]]:
    """The runs of words other than stop words, in order, with repetitions: each as text, and its words.

    Words of the text have a space between them where they stand apart.
    """
    found = []
    for phrase in _BREAK.split(text.lower().replace("’", "'")):
        for is_stop_word, run in groupby(_WORD.findall(phrase), lambda pair: pair[1] in _stop_words()):
            pairs = list(run)
            if not is_stop_word:
                candidate = "".join(f" {word}" if gap else word for gap, word in pairs).lstrip()
                found.append((candidate, [word for _, word in pairs]))
    return found


@lru_cache(maxsize=1)
def _stop_words() -> frozenset[str]:
    lines = files("tlm.retrieval.search").joinpath("stop_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
