"""Mixtures: several models of a task as one, weighted on dev."""
