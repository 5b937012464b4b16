"""Bearer keys: only digests are kept; a lookup by digest gives nothing away through its timing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from gateway.config.schema import Key
from gateway.wire.errors import ApiError, Header

_BEARER = re.compile(rb"(?i:bearer) +([!-~]{1,512})[ \t]*\Z")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a key's name, its tenant and what it may do. `models` is None for all."""

    key: str
    tenant: str
    scopes: frozenset[str]
    models: frozenset[str] | None
    priority: Literal["interactive", "batch"] = "interactive"

    def may_use(self, model: str) -> bool:
        """Whether this key may ask for that name."""
        return self.models is None or model in self.models


Keys = Mapping[bytes, Principal]


def principals(keys: Iterable[Key], names: Iterable[str]) -> Keys:
    """Digest -> principal; model patterns (`qwen-*`) are resolved against the configured names."""
    known = tuple(names)
    found: dict[bytes, Principal] = {}
    for key in keys:
        allowed = None
        if "*" not in key.models:
            allowed = frozenset(name for name in known if any(fnmatchcase(name, pattern) for pattern in key.models))
        found[bytes.fromhex(key.sha256)] = Principal(key.name, key.tenant, frozenset(key.scopes), allowed, key.priority)
    return found


def authenticated(keys: Keys, headers: Sequence[Header]) -> Principal | None:
    """The caller, or None without exactly one good key."""
    presented = [value for name, value in headers if name == b"authorization"]
    match = _BEARER.match(presented[0]) if len(presented) == 1 else None
    return keys.get(hashlib.sha256(match.group(1)).digest()) if match else None


def require(principal: Principal | None, scope: str, headers: Sequence[Header]) -> Principal:
    """The caller, who must hold the scope. Raises ApiError 401 or 403; neither shows what was sent."""
    if principal is None:
        presented = any(name == b"authorization" for name, _ in headers)
        raise ApiError(
            401,
            "invalid_api_key",
            "Incorrect API key provided." if presented else "No API key provided: send `Authorization: Bearer KEY`.",
            headers=((b"www-authenticate", b"Bearer"),),
        )
    if scope not in principal.scopes:
        raise ApiError(403, "caller_forbidden_scope", f"This key lacks the scope `{scope}`.")
    return principal
