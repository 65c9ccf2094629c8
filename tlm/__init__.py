"""TLM: train a text classifier from scratch on a task and the part of a corpus that matters to it."""

__version__ = "0.1.0"
