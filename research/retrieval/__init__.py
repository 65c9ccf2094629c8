"""The passages that retrieval finds for a task."""
