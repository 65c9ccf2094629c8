"""Selectors without queries: they give every passage of the corpus a score, and the best are taken."""
