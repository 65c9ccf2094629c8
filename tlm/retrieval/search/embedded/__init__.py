"""BM25 on files of our own, searched in this process."""
