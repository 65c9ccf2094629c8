"""What a person fills in: parameters in groups, and options of the command line."""
