"""A corpus, loaded in parts by any number of processes and pods; the result is the same byte for byte."""
