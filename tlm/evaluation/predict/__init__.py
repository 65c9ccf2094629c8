"""Predict with any model folder: encoders, shallow models and mixtures of them."""
