"""The engines as the gateway sees them: which serve a model, how busy they are, and how bytes reach them."""
