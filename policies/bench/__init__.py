"""Measurements of routing on published outcomes: nothing here serves a request."""
