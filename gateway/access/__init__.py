"""Who may call, and what."""
