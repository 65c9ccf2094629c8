"""Scores of models on a task, their confidence intervals, and predictions."""
