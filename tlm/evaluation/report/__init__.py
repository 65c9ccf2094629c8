"""The contents of reports."""
