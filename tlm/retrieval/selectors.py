"""Selectors: by scores of every passage (DSIR, a quality classifier), or by vectors ("dense", "hybrid").

Scores see a text as counts of hashed words and pairs of neighbouring words. The importance of a text in DSIR
(arXiv 2302.03169) is the ratio of its probability in the task to that in the corpus. Passages are drawn without
replacement in proportion to it, by adding Gumbel noise to its logarithm and taking the highest (section 3 there), so
that their words are distributed as the task's are. The classifier is a linear model, as are the filters of DCLM
(arXiv 2406.11794) and BETR (arXiv 2507.12466), but fitted to this one task.

"dense" finds the nearest passages, "hybrid" fuses that ranking with BM25's. The paper names dense retrieval as future
work. The search is exact, unless an index in Elasticsearch has vectors of its own: every passage is compared with every
query, block by block. Rankings are fused by reciprocal ranks (Cormack et al., SIGIR 2009), here for both search
engines, because Elasticsearch's own fusion needs a licence.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from tlm.artifacts.artifact import Artifact
from tlm.data.parallel import as_done, each
from tlm.data.passages import SEVERAL, sample, shard_passages, shards
from tlm.data.ranges import Ints
from tlm.data.tasks.metrics import Floats
from tlm.retrieval.search.analyzer import batched
from tlm.retrieval.search.embed import Embed, StaticEmbedder, published_vectors
from tlm.retrieval.search.index import VECTORS, located, open_engine
from tlm.retrieval.search.query import LOW, Docs, Engine, Scores, packed, unpacked
from tlm.settings.selectors import SELECTORS
from tlm.shallow.features import letters_of
from tlm.shallow.models import one_thread

BUCKETS = 10_000  # of DSIR, as in the paper
LEAST = 1e-8  # probability of a bucket that never occurs, as in the authors' code
SAMPLE = 1_000_000  # passages to learn the corpus's distribution from
PORTION, PORTION_CHARACTERS = 10_000, 1 << 24  # texts counted at once
FEATURES = 1 << 18  # buckets of the classifier


def dsir(corpus: Artifact, texts: Sequence[str], seed: int) -> Floats:
    """The logarithm of each passage's importance, with noise that makes the highest ones a draw."""
    logs = log_ratios(word_shares(texts), word_shares(sample(corpus, SAMPLE)))
    importance = scores_of_all(corpus, partial(log_importance, logs))
    return importance + np.random.default_rng(seed).gumbel(size=len(importance))


def classifier(corpus: Artifact, texts: Sequence[str], seed: int) -> Floats:
    """The log-odds that each passage is the task's; the passages that it is compared with are drawn by `seed`."""
    others = list(sample(corpus, int(SELECTORS["classifier"].sampled), seed))
    return scores_of_all(corpus, partial(log_odds, fitted(texts, others)))


SCORERS = {"dsir": dsir, "classifier": classifier}  # (corpus, texts of the task, seed) -> scores, in order of `doc`


def word_shares(texts: Iterable[str]) -> Floats:
    """The distribution of the words and pairs of texts over the buckets, [buckets]."""
    total = np.zeros(BUCKETS)
    for portion in batched(texts, PORTION, PORTION_CHARACTERS):
        total += np.asarray(counts(portion, BUCKETS).sum(axis=0)).ravel()
    return total / max(total.sum(), 1.0)  # type: ignore[no-any-return]


def log_ratios(task: Floats, corpus: Floats) -> Floats:
    """The logarithm of how much more often each bucket occurs in the task than in the corpus."""
    return np.log(task + LEAST) - np.log(corpus + LEAST)  # type: ignore[no-any-return]


def log_importance(logs: Floats, texts: Sequence[str]) -> Floats:
    """The logarithm of the importance of each text: the sum over its words and pairs."""
    return counts(texts, BUCKETS) @ logs  # type: ignore[no-any-return]


def fitted(texts: Sequence[str], others: Sequence[str]) -> LogisticRegression:
    """A model that separates the task's texts from others; both sides weigh the same."""
    labels = np.repeat([1, 0], [len(texts), len(others)])
    model = LogisticRegression(class_weight="balanced", max_iter=200)
    return model.fit(normalize(counts([*texts, *others], FEATURES)), labels)


def log_odds(model: LogisticRegression, texts: Sequence[str]) -> Floats:
    """The model's score of each text."""
    return model.decision_function(normalize(counts(texts, FEATURES))) if texts else np.zeros(0)  # type: ignore[no-any-return]


def counts(texts: Sequence[str], buckets: int) -> csr_matrix:
    """Count the words and pairs of neighbouring words of each text by bucket, [texts, buckets].

    Words are those of `letters_of`.
    """
    words = {"tokenizer": letters_of, "token_pattern": None, "lowercase": False, "ngram_range": (1, 2)}
    return HashingVectorizer(n_features=buckets, alternate_sign=False, norm=None, **words).transform(texts)


def scores_of_all(corpus: Artifact, score: Callable[[Sequence[str]], Floats]) -> Floats:
    """The score of every passage, in order of `doc`; of a large corpus in several processes."""
    numbers = range(len(shards(corpus)))
    found = dict(each(partial(_scores_of_shard, corpus.uri, score), numbers, "scoring", "shards", least=SEVERAL))
    return np.concatenate([found[number] for number in numbers])


def _scores_of_shard(uri: str, score: Callable[[Sequence[str]], Floats], number: int) -> tuple[int, Floats]:
    portions = (batch.column("text").to_pylist() for batch in shard_passages(uri, number, ["text"]))
    return number, np.concatenate([np.zeros(0), *map(score, portions)])


BLOCK = 4096  # texts that get their vectors at once
MOST_AT_ONCE = 1 << 20  # scores and hits that are compared at once
RRF = 60  # the constant of the paper: the larger, the less the first ranks count


def dense(index: Artifact, folder: str, seed: int) -> Engine:
    """Return an engine that compares vectors.

    Args:
        index: The index, whose passages are compared.
        folder: A published model; "": static vectors, those of the index if it has any.
        seed: Seed of the passages that static vectors are learned from.

    Raises:
        InputError: the model does not load, or there is no word that occurs often enough.
    """
    corpus = index.input("corpus")
    if not folder and index.details.get("vectors"):
        from tlm.retrieval.search.elastic import ElasticVectors

        return ElasticVectors(located(index), StaticEmbedder.read(index.path(VECTORS)))
    return Nearest(corpus, partial(published_vectors, folder) if folder else StaticEmbedder.learn(corpus, seed))


def hybrid(index: Artifact, folder: str, seed: int) -> Engine:
    """Return an engine that fuses BM25's ranking with that of `dense`, which takes the same arguments."""
    return Fused([open_engine(index), dense(index, folder, seed)])


SEARCHERS = {"dense": dense, "hybrid": hybrid}


@dataclass(frozen=True)
class Fused:
    """A search engine that asks others.

    Attributes:
        engines: The engines whose rankings are fused.
    """

    engines: Sequence[Engine]

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Yield the best passages of each query, as `Engine.search` does; each engine is asked for `top_k`."""
        for answers in zip(*(engine.search(queries, top_k) for engine in self.engines), strict=True):
            yield fused([docs for docs, _ in answers], top_k)


def fused(rankings: Sequence[Docs], top_k: int) -> tuple[Docs, Scores]:
    """The passages with the highest sums of 1 / (`RRF` + rank), and these; of equal ones, the first passage."""
    docs, place = np.unique(np.concatenate(rankings), return_inverse=True)
    ranks = np.concatenate([np.arange(1, len(ranking) + 1) for ranking in rankings])
    scores = np.bincount(place, 1 / (RRF + ranks), minlength=len(docs))
    best = np.lexsort((docs, -scores))[:top_k]
    return docs[best].astype(np.int64), scores[best].astype(np.float32)


@dataclass(frozen=True)
class Nearest:
    """A search engine that scores a passage by the inner product of its vector with the query's.

    What has no vector finds nothing and is not found. Of a large corpus, several processes compare one shard each.
    Each holds the queries' vectors and `top_k` hits of every query, 8 bytes a hit; the first process twice as many.

    Attributes:
        corpus: The passages.
        embed: Gives each text a vector; 0 if it has none.
    """

    corpus: Artifact
    embed: Embed

    def search(self, queries: Sequence[str], top_k: int) -> Iterator[tuple[Docs, Scores]]:
        """Yield the nearest passages of each query, as `Engine.search` does."""
        with one_thread():
            starts = range(0, max(1, len(queries)), BLOCK)
            vectors = np.concatenate([self.embed(queries[start : start + BLOCK]) for start in starts])
        has_vector = np.any(vectors != 0, axis=1)
        best = Best(int(np.count_nonzero(has_vector)), min(top_k, self.corpus.details["passages"]))
        work = partial(_hits_of_shard, self.corpus.uri, self.embed, vectors[has_vector], best.top_k)
        for hits in as_done(work, range(len(shards(self.corpus))), "comparing", "shards", least=SEVERAL):
            best.add(hits)
        answers = best.answers()
        for found in has_vector.tolist():
            yield next(answers) if found else unpacked(np.zeros(0, np.int64))


class Best:
    """The best hits of each query among all that were added; of equal scores, the first passage.

    Attributes:
        top_k: The most hits of a query.
        hits: As `packed`, in any order but with the worst first; shape [queries, top_k].
    """

    def __init__(self, queries: int, top_k: int) -> None:
        """Begin without hits."""
        self.top_k = top_k
        self.hits = np.full((queries, top_k), NO_HIT)

    def add(self, hits: Ints) -> None:
        """Add hits of all queries, in any order, shape [queries, hits]."""
        for rows in self.portions(hits.shape[1]):
            self._keep(np.arange(rows.start, rows.stop), hits[rows])

    def add_scores(self, rows: slice, docs: Docs, scores: Scores) -> None:
        """Add passages, which come after all that were added before, with their scores for some queries.

        Args:
            rows: Which queries.
            docs: The passages, shape [docs].
            scores: Their scores, shape [queries, docs].
        """
        _, least = unpacked(self.hits[rows, 0])
        query, place = np.nonzero(scores > least[:, None])
        if len(query):
            queries, count = np.unique(query, return_counts=True)
            row = np.repeat(np.arange(len(queries)), count)
            column = np.arange(len(query)) - np.repeat(np.cumsum(count) - count, count)  # counts from 0 in each row
            hits = np.full((len(queries), count.max()), NO_HIT)
            hits[row, column] = packed(scores[query, place], docs[place])
            self._keep(rows.start + queries, hits)

    def portions(self, more: int) -> Iterator[slice]:
        """Cut the queries into portions that fit in memory with their hits and `more` hits or scores of each."""
        size = max(1, MOST_AT_ONCE // max(1, self.top_k + more))
        for start in range(0, len(self.hits), size):
            yield slice(start, min(start + size, len(self.hits)))

    def answers(self) -> Iterator[tuple[Docs, Scores]]:
        """Yield the passages and scores of each query, the best first."""
        for hits in self.hits:
            yield unpacked(np.sort(hits[hits != NO_HIT])[::-1])

    def _keep(self, queries: Ints, hits: Ints) -> None:
        both = np.concatenate([self.hits[queries], hits], axis=1)
        both.partition(hits.shape[1], axis=1)  # as many leave; what follows them is the worst of the others
        self.hits[queries] = both[:, hits.shape[1] :]


NO_HIT = packed(np.array([-np.inf], np.float32), np.array([LOW]))[0]


def _hits_of_shard(uri: str, embed: Embed, queries: NDArray[np.float32], top_k: int, number: int) -> Ints:
    """The best hits of each query in a shard, shape [queries, top_k].

    Products are those of 64-bit floats, in which sums of vectors from `embed.rounded` have no rounding errors.
    """
    best = Best(len(queries), top_k)
    with one_thread():
        for batch in shard_passages(uri, number, ["doc", "text"]):
            for start in range(0, batch.num_rows, BLOCK):
                block = batch.slice(start, BLOCK)
                vectors = embed(block.column("text").to_pylist())
                has_vector = vectors.any(axis=1)
                docs, columns = block.column("doc").to_numpy()[has_vector], vectors[has_vector].T.astype(np.float64)
                for rows in best.portions(len(docs)):
                    best.add_scores(rows, docs, (queries[rows] @ columns).astype(np.float32))
    return best.hits
