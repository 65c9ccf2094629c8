"""BM25 by Elasticsearch."""
