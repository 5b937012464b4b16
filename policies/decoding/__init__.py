"""How a plan's model is asked more than once, and which of its answers is given."""
