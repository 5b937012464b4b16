"""Request and decision ids.

A decision id is a UUIDv7 (RFC 9562, 5.7: sortable by its 48 bits of milliseconds) and a tag keyed over it and the tenant, so that any
replica with the same secret can tell a genuine id before its row is stored.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import re
import secrets
import time
from collections.abc import Callable

FORM = re.compile(r"[0-9a-f]{32}-[0-9a-f]{12}\Z")
"""A decision id."""

_SANE = re.compile(rb"[A-Za-z0-9._:-]{1,128}\Z")


class DecisionIds:
    """Mints ids under one secret. The random bits only keep ids apart; what cannot be guessed is the tag."""

    def __init__(self, secret: bytes | None = None, clock: Callable[[], int] = time.time_ns) -> None:
        key = hashlib.blake2b(secret if secret is not None else secrets.token_bytes(32), digest_size=32).digest()
        self._keyed = hashlib.blake2b(digest_size=6, key=key)
        self._clock = clock
        self._bits = random.Random(secrets.token_bytes(32)).getrandbits  # noqa: S311 (see above)

    def mint(self, tenant: str) -> str:
        """A new id: 32 hex digits of UUIDv7, a dash, 12 hex digits of tag."""
        bits = self._bits(74)
        millis = self._clock() // 1_000_000 & (2**48 - 1)
        uuid = f"{millis << 80 | 0x7 << 76 | (bits >> 62) << 64 | 0b10 << 62 | bits & (2**62 - 1):032x}"
        return f"{uuid}-{self._tag(uuid, tenant)}"

    def is_genuine(self, decision_id: str, tenant: str) -> bool:
        """Whether it was minted for the tenant, here or by whoever has the same secret."""
        return FORM.match(decision_id) is not None and hmac.compare_digest(decision_id[33:], self._tag(decision_id[:32], tenant))

    def _tag(self, uuid: str, tenant: str) -> str:
        tag = self._keyed.copy()
        tag.update(f"{uuid}{tenant}".encode())
        return tag.hexdigest()


def minted_at(decision_id: str) -> float:
    """When the request came that has this id; seconds since 1970."""
    return int(decision_id[:12], 16) / 1e3


def request_id(wished: bytes | None, decision_id: str) -> str:
    """The caller's `x-request-id` when it is a plain token, else one of our own."""
    if wished is not None and _SANE.match(wished):
        return wished.decode("ascii")
    return "req_" + decision_id[:32]
