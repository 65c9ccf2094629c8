"""The demo's data: an ordinary corpus and an ordinary task, made of the documentation in a few packages."""
