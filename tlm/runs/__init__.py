"""A run as a whole: its plan, advice on settings, checks before it, training on several nodes, the model registry."""
