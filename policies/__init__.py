"""What is decided, per request: pure, seeded, testable without a network."""
