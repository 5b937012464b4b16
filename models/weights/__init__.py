"""Weights that are shipped; README.md says how each was made."""
