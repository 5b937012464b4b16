"""Routing policies: one algorithm, one file."""
