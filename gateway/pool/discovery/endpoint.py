"""A replica's place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

_URL: Final = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica. weight: relative to its backend's. labels: what its source says of it (pod, node, zone), by name, for people."""

    url: str
    weight: float = 1.0
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """What tells it from other replicas of a backend: host, port and path."""
        return self.url.removeprefix("http://")


def endpoint(url: str, weight: float = 1.0, labels: Iterable[tuple[str, str]] = ()) -> Endpoint:
    """A checked one, without the `/v1` that a URL may end with. Raises ValueError, which never repeats the URL: it may hold a password."""
    if not _URL.fullmatch(url):
        raise ValueError("the URL should be http://HOST[:PORT][/PATH] or https://..., without user, query or fragment")
    parts = urlsplit(url)  # raises ValueError for brackets without an address in them
    if not parts.hostname or parts.port == 0:  # so does `port` for one that is none
        raise ValueError("the URL names no host, or port 0")
    if not 0 < weight <= 1_000:
        raise ValueError("the weight should be above 0, and at most 1000")
    return Endpoint(url.rstrip("/").removesuffix("/v1").rstrip("/"), float(weight), tuple(sorted(labels)))


def at(scheme: str, host: str, port: int, labels: Iterable[tuple[str, str]] = ()) -> Endpoint:
    """The one at a host's port; an IPv6 address gets its brackets. Raises ValueError."""
    return endpoint(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", labels=labels)


def merged(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Each URL once, in the order given; the first to name it counts."""
    found: dict[str, Endpoint] = {}
    for each in endpoints:
        found.setdefault(each.url, each)
    return tuple(found.values())
