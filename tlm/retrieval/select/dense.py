"""Dense retrieval: the passages whose vectors are nearest to those of the training examples.

The paper names it as future work. The search is exact, unless an index in Elasticsearch has vectors of its own.
"""

from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.embed import Published, Static
from tlm.retrieval.search.index import VECTORS, located
from tlm.retrieval.search.query import Engine
from tlm.retrieval.select.nearest import Nearest


def dense(index: Artifact, folder: str, seed: int) -> Engine:
    """An engine that compares vectors.

    Args:
        index: The index, whose passages are compared.
        folder: A published model; "": static vectors, those of the index if it has any.
        seed: Seed of the passages that static vectors are learned from.

    Raises:
        InputError: the model does not load, or there is no word that occurs often enough.
    """
    corpus = index.input("corpus")
    if folder:
        return Nearest(corpus, Published(folder))
    if index.details.get("vectors"):
        from tlm.retrieval.search.elastic import ElasticVectors

        return ElasticVectors(located(index), Static.read(index.path(VECTORS)))
    return Nearest(corpus, Static.learn(corpus, seed))
