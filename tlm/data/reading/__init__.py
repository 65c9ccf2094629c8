"""Input files, wherever they lie and whatever their format, as records."""
