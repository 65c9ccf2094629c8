"""Ways to choose passages: search by BM25 or by vectors, scores of all passages, and random draws."""
