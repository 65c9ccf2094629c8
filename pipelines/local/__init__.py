"""Pipelines on this machine."""
