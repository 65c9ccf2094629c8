"""Read input files from any supported place and format as rows."""
