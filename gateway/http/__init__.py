"""HTTP in: thin over the serving core."""
