"""Wrappers: what changes, watches or bounds another policy. They hold it as `inner`, and compose."""
