"""A limit: so many requests or tokens a minute, or calls at once, of a key or of a tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from gateway.config.schema import Rules

Kind = Literal["requests", "tokens", "concurrency"]

# What a request that names no largest answer is taken to want, but not more than this part of what it may have in a minute.
_ANSWER: Final = 1_024
_PART: Final = 8


class Limit(msgspec.Struct, frozen=True, gc=False):
    """At most `most` of a kind. subject: whose it is, such as `key dev`. id: kind and subject in one word."""

    kind: Kind
    subject: str
    most: int
    id: str


class Need(NamedTuple):
    """The tokens that a request will use, estimated from above. completion: None when it names no bound. answers: how many there are."""

    prompt: int
    completion: int | None
    answers: int = 1

    def under(self, limit: Limit) -> int:
        """How much of that limit it takes."""
        if limit.kind != "tokens":
            return 1
        return self.prompt + (min(self.answers * _ANSWER, limit.most // _PART) if self.completion is None else self.completion)

    def times(self, calls: int) -> Need:
        """Of so many calls alike."""
        return Need(calls * self.prompt, None if self.completion is None else calls * self.completion, calls * self.answers)


def limits_of(key: str, own: Rules, default: Rules, tenant: str, tenants: Mapping[str, Rules]) -> Sequence[Limit]:
    """The limits of a key: its own, the default where it has none, and its tenant's."""
    of_tenant = tenants.get(tenant)
    found = [_limit(kind, f"key {key}", _first(own, default, kind)) for kind in _FIELDS]
    if of_tenant is not None:
        found += [_limit(kind, f"tenant {tenant}", getattr(of_tenant, _FIELDS[kind])) for kind in _FIELDS]
    return tuple(limit for limit in found if limit is not None)


_FIELDS: Final[Mapping[Kind, str]] = {"requests": "rpm", "tokens": "tpm", "concurrency": "concurrency"}


def _first(own: Rules, default: Rules, kind: Kind) -> int | None:
    most: int | None = getattr(own, _FIELDS[kind])
    if most is None:
        most = getattr(default, _FIELDS[kind])
    return most


def _limit(kind: Kind, subject: str, most: int | None) -> Limit | None:
    return None if most is None else Limit(kind, subject, most, f"{kind} {subject}")
