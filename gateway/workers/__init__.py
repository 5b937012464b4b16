"""One gateway as several processes: a parent that owns the port and the engines, and workers that serve."""
