"""Several tasks in one encoder: one subset, and one report."""
