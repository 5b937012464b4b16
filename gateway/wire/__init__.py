"""The OpenAI format on the wire: pure functions on bytes, no I/O."""
