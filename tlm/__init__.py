"""TLM: train a text classifier from scratch on a task and the part of a corpus that is relevant to it."""

__version__ = "0.1.0"
