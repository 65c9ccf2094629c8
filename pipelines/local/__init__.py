"""Run pipelines on this machine."""
