"""Encoders, their heads and losses."""
