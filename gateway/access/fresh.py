"""A fresh key, and what is kept of one."""

from __future__ import annotations

import hashlib
import secrets


def new_key() -> str:
    """A key of 256 random bits: letters, digits, `-` and `_`."""
    return "sk-" + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """What is kept of a key: SHA-256, hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()
