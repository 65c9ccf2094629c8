"""The passages that a run trains on, without overlaps with dev and test."""
