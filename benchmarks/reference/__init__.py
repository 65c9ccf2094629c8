"""Ways of others, written by us from their description, to measure ours against. No line of theirs is copied."""
