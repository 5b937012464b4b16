"""What the engines are like: an adapter for each kind, and the supervisor of those that the gateway runs itself."""
