"""Other people's ways to do the same, to measure against."""
