"""What another policy would have done: logs, estimates with intervals, replays and simulations."""
