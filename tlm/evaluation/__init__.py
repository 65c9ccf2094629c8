"""Evaluation: scores, the baseline, predictions and reports."""
