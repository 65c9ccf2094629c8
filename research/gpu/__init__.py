"""The first hour on a GPU: correctness, speed and quality, in pieces of minutes."""
