"""Scores of a model on a task, and their intervals."""
