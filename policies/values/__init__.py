"""What flows: frozen values."""
