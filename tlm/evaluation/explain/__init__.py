"""Why a model answers as it does: what decided, the nearest training texts, the passages that taught its words."""
