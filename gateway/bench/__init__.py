"""What the gateway itself costs, measured beside nginx."""
