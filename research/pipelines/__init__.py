"""Pipelines of studies."""
