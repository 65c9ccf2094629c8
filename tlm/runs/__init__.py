"""A run as a whole: its plan, checks before it, training on several nodes, the model registry."""
