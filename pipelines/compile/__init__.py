"""Compile pipelines to YAML, with images and versions, and check the result."""
