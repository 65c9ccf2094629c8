"""Artifacts: folders of files that appear whole or not at all, named by what made them."""
