"""What to run: settings checked before any work, advice for a task, and the runs of a pipeline."""
