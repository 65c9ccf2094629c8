"""What BM25 finds for a task."""
