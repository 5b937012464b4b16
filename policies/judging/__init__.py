"""Asking a model which of several answers is the best, or how good one is: what is shown, what comes back, and how fair that was."""
