"""Bearer keys: only digests are kept; a lookup by digest gives nothing away through its timing."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal

from gateway.access.limit import Limit, limits_of
from gateway.config.schema import Key, Limits, Rules
from gateway.store.keys import StoredKey
from gateway.wire.errors import ApiError, Header

_BEARER = re.compile(rb"(?i:bearer) +([!-~]{1,512})[ \t]*\Z")
_BARE = re.compile(rb"([!-~]{1,512})\Z")
_UNLIMITED: Final = Limits()


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: a key's name, its tenant and what it may do. `models` is None for all.

    limits: what it may use. tags: for each of its decisions. expires: seconds since 1970; None: never.
    """

    key: str
    tenant: str
    scopes: frozenset[str]
    models: frozenset[str] | None
    priority: Literal["interactive", "batch"] = "interactive"
    limits: Sequence[Limit] = ()
    tags: Mapping[str, str] | None = None
    expires: float | None = None

    def may_use(self, model: str) -> bool:
        """Whether this key may ask for that name."""
        return self.models is None or model in self.models


Keys = Mapping[bytes, Principal]


def principals(keys: Iterable[Key], names: Iterable[str], limits: Limits = _UNLIMITED, stored: Iterable[StoredKey] = ()) -> Keys:
    """Digest -> principal. Model patterns (`qwen-*`) are resolved against the configured names.

    stored: keys of the database; one that the configuration has too is as the configuration says. One that was revoked is none.
    """
    known = tuple(names)
    found: dict[bytes, Principal] = {}
    for key in stored:
        if key.revoked is None:
            own = Rules(rpm=key.rpm, tpm=key.tpm, concurrency=key.concurrency)
            found[bytes.fromhex(key.sha256)] = _principal(key, own, key.expires, known, limits)
    for spec in keys:
        found[bytes.fromhex(spec.sha256)] = _principal(spec, spec.limits, spec.expires_at, known, limits)
    return found


def _principal(key: Key | StoredKey, own: Rules, expires: float | None, names: Sequence[str], limits: Limits) -> Principal:
    allowed = None
    if "*" not in key.models:
        allowed = frozenset(name for name in names if any(fnmatchcase(name, pattern) for pattern in key.models))
    return Principal(
        key=key.name,
        tenant=key.tenant,
        scopes=frozenset(key.scopes),
        models=allowed,
        priority=key.priority,
        limits=limits_of(key.name, own, limits.key, key.tenant, limits.tenants),
        tags=key.tags or None,
        expires=expires,
    )


def authenticated(keys: Keys, headers: Sequence[Header]) -> Principal | None:
    """The caller, or None without exactly one good key: in `authorization`, or in `x-api-key` as Anthropic's clients send it."""
    presented = [header for header in headers if header[0] == b"authorization" or header[0] == b"x-api-key"]
    if len(presented) == 1:
        name, value = presented[0]
        match = _BEARER.match(value) if name == b"authorization" else _BARE.match(value)
        return keys.get(hashlib.sha256(match.group(1)).digest()) if match is not None else None
    return _twice(keys, presented) if presented else None


def presents_key(headers: Iterable[Header]) -> bool:
    """Whether a key, good or not, stands in them."""
    return any(name in (b"authorization", b"x-api-key") for name, _ in headers)


def require(principal: Principal | None, scope: str, headers: Sequence[Header]) -> Principal:
    """The caller, whose key must be good still, and hold the scope. Raises ApiError 401 or 403; neither shows what was sent."""
    if principal is None:
        presented = presents_key(headers)
        raise _unknown("Incorrect API key provided." if presented else "No API key provided: send `Authorization: Bearer KEY`.")
    if principal.expires is not None and principal.expires <= time.time():
        raise _unknown("This API key has expired.")
    if scope not in principal.scopes:
        raise ApiError(403, "caller_forbidden_scope", f"This key lacks the scope `{scope}`.")
    return principal


def _twice(keys: Keys, presented: Sequence[Header]) -> Principal | None:
    """Some clients send one key in both headers; anything else is one key too many."""
    if len(presented) == 2 and presented[0][0] != presented[1][0]:
        first, second = (authenticated(keys, (header,)) for header in presented)
        return first if first is second else None
    return None


def _unknown(message: str) -> ApiError:
    return ApiError(401, "invalid_api_key", message, headers=((b"www-authenticate", b"Bearer"),))
