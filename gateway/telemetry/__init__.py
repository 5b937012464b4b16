"""What can be seen of a running gateway: numbers, logs, spans."""
