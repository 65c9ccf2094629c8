"""From an index artifact to the engine that searches it."""

from tlm.artifacts.artifact import Artifact
from tlm.retrieval.search.engine import Engine
from tlm.retrieval.search.index import located


def open_engine(index: Artifact) -> Engine:
    """The engine that an ``index`` artifact belongs to, checked and ready.

    Raises:
        InputError: the index is gone from its server, or is not what the artifact says.
    """
    if index.details["engine"] == "elasticsearch":
        from tlm.retrieval.search.elastic.engine import Elastic

        return Elastic(located(index))
    from tlm.retrieval.search.embedded.engine import Embedded

    return Embedded(index.path)
