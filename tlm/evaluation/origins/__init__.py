"""Where an answer comes from (what decided, the nearest training texts), and an artifact (its sources)."""
