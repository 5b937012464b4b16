"""`trilemma keys`: a new key, shown once, and the digest that goes into the configuration."""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
from collections.abc import Sequence


def new_key() -> str:
    """A key of 256 random bits: letters, digits, `-` and `_`."""
    return "sk-" + secrets.token_urlsafe(32)


def digest(key: str) -> str:
    """What the configuration keeps of a key: SHA-256, hexadecimal."""
    return hashlib.sha256(key.encode()).hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a fresh key with its digest."""
    parser = argparse.ArgumentParser(prog="trilemma keys", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args(argv)
    key = new_key()
    if args.json:
        print(json.dumps({"key": key, "sha256": digest(key)}))
    else:
        print(f"key:    {key}\nsha256: {digest(key)}\n\nThe key is not stored anywhere; the digest goes under `keys` in the configuration.")
    return 0
