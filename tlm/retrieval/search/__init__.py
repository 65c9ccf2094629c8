"""Index a corpus and search it with BM25."""
