"""Texts as batches of token ids."""
