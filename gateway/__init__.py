"""Trilemma's gateway: the world (HTTP in, engines out)."""

__version__ = "0.1.0"
