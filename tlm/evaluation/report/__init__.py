"""Reports: models side by side, what may be concluded, and what it cost."""
