"""What a run on a cluster needs besides the method: a look at its servers beforehand, training on several nodes."""
