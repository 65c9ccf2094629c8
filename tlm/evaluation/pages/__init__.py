"""How a report looks."""
