"""A small model that learns from the answers of a better one, on the task and on the text that was fetched for it."""
