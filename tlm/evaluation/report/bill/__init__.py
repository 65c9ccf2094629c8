"""The bill of a report: what was spent, and what predictions cost, in operations, time, energy, CO2e and money."""
