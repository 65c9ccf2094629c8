"""Retrieval: an index over a corpus, training examples as queries, the passages that were hit as a subset."""
