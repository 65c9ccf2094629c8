"""What a report compares: pairs of groups on test, and training from scratch with a published model."""
