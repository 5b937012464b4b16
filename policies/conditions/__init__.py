"""What a rule asks of a request: signals, and Boolean conditions over them."""
