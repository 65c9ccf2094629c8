"""Pipelines as YAML, with the images and versions in it."""
