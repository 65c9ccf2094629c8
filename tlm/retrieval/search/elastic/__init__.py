"""BM25 on an Elasticsearch server."""
