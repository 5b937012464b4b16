"""Prompts of the gateway's own, and how what comes back is read."""
