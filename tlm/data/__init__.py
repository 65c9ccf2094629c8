"""Load the user's data: read, normalise and split corpora and labelled tasks."""
