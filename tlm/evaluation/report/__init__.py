"""What a report says."""
