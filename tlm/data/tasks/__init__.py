"""A labelled task: examples, labels and splits."""
