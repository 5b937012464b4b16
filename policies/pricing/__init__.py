"""What cost and latency are worth in quality."""
