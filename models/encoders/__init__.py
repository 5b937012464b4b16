"""Features of a request's text. One file an encoder; what is common to them is text.py."""
