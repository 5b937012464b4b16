"""Seeing and changing the running gateway."""
