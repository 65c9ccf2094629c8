"""The pages of reports, described once as blocks."""
