"""BM25 in this process."""
