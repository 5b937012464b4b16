"""The configuration: one strict file, read, checked and held as a frozen value."""
