"""Evaluation: scores, the honest baseline, predictions and the report."""
