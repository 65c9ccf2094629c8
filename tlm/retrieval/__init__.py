"""Retrieval: an index over a corpus, training examples as queries, other ways to choose text, the subset of hits."""
