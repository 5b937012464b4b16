"""Wrong keys, counted per address, so that guessing is slow. A good key is never asked where it comes from."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address
from typing import Final

from gateway.access.keys import presents_key
from gateway.access.limits import duration
from gateway.access.meters import Minute
from gateway.wire.errors import ApiError, Header, retry_after

# Addresses that are kept. Who has more than that to guess from is slowed down by none.
_KEPT: Final = 10_000


class FailedKeys:
    """Wrong keys of the last minute by address; an IPv6 address stands for its /64, which one customer has as a rule."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, kept: int = _KEPT) -> None:
        self._clock = clock
        self._kept = kept
        self._seen: OrderedDict[str, Minute] = OrderedDict()

    def __len__(self) -> int:
        """Addresses that are kept."""
        return len(self._seen)

    def count(self, address: str, headers: Sequence[Header], most: int) -> None:
        """Somebody has shown no key that is known. most: wrong ones a minute; 0: any number. Raises ApiError 429 when these were more."""
        if most == 0 or not presents_key(headers):
            return
        now = self._clock()
        seen = self._of(_network(address))
        wait_s = seen.wait_s(1, most, now)
        if wait_s == 0:
            seen.add(1, now)
            return
        message = f"Too many incorrect API keys from this address. Please try again in {duration(wait_s).decode()}."
        raise ApiError(429, "rate_limit_exceeded", message, headers=retry_after(wait_s))

    def _of(self, network: str) -> Minute:
        seen = self._seen.get(network)
        if seen is None:
            if len(self._seen) >= self._kept:
                self._seen.popitem(last=False)
            seen = self._seen[network] = Minute()
        else:
            self._seen.move_to_end(network)
        return seen


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or found.packed[:8].hex())
