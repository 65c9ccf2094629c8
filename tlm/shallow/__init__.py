"""Models without a neural network, trained in seconds: linear models of words, and static vectors of retrieved text."""
