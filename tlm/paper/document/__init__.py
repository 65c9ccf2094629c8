"""The page of results beside those of the paper."""
