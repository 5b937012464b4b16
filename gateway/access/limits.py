"""Limits per key and per tenant, counted in this process's memory.

permit = limits.permit(principal)        None: nothing limits this caller
permit.take(need)                        before anything is spent; raises ApiError 429
permit.headers()                         x-ratelimit-*, from the counters that decide
permit.close(spent)                      once, when the request has ended

All limits of a caller are looked at together, then all are taken: who is refused has used nothing, so what is said of the wait is true.
leases.py has the limits that several processes share.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Final

from gateway.access.keys import Principal
from gateway.access.limit import Kind, Limit, Need
from gateway.access.meters import Meter, Minute, Running, Step
from gateway.wire.errors import NO_RETRY, ApiError, Header, retry_after

Clock = Callable[[], float]
Counted = tuple[Kind, int, Meter, Limit]
"""The limit's kind, its most, what is used of it, and the limit."""

Told = tuple[bytes, bytes, Sequence[tuple[int, Meter, Header]]]
"""What is told of one kind: the headers of what remains and of when it is whole again, and of each limit its most, what is used of it, and
the header that says how much it is."""

_FIRST: Final = itemgetter(0)
# Counters of callers that have long been silent are looked for when so many are kept.
_KEPT: Final = 1_024
_PER: Final[Mapping[Kind, str]] = {
    "requests": "requests per minute (RPM)",
    "tokens": "tokens per minute (TPM)",
    "concurrency": "requests at once",
}
_HEADERS: Final[Mapping[Kind, tuple[bytes, bytes, bytes]]] = {
    "requests": (b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
    "tokens": (b"x-ratelimit-limit-tokens", b"x-ratelimit-remaining-tokens", b"x-ratelimit-reset-tokens"),
}


class Limits:
    """The counters of all callers, which outlive every configuration. clock: seconds, never back."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self._meters: dict[str, Meter] = {}
        self._sweep_at = _KEPT
        # What a caller's permits count with; good for as long as the caller has the same limits.
        self._counted: dict[str, tuple[Sequence[Limit], Sequence[Counted], Sequence[Told]]] = {}

    def __len__(self) -> int:
        """Counters that are kept."""
        return len(self._meters)

    def permit(self, principal: Principal) -> Permit | None:
        """What a request of this caller has to take; None: it is not limited."""
        limits = principal.limits
        if not limits:
            return None
        known = self._counted.get(principal.key)
        if known is None or known[0] is not limits:
            counted = tuple((limit.kind, limit.most, self._meter(limit), limit) for limit in limits)
            known = self._counted[principal.key] = (limits, counted, _told(counted))
        return self._permit(known[1], known[2])

    def _permit(self, counted: Sequence[Counted], told: Sequence[Told]) -> Permit:
        return Permit(self.clock, counted, told)

    def _meter(self, limit: Limit) -> Meter:
        meter = self._meters.get(limit.id)
        if meter is None:
            if len(self._meters) >= self._sweep_at:
                self._sweep()
            meter = self._meters[limit.id] = self._made(limit)
        return meter

    def _made(self, limit: Limit) -> Meter:
        return Running() if limit.kind == "concurrency" else Minute()

    def _sweep(self) -> None:
        """Forgets counters that count nothing."""
        now = self.clock()
        self._meters = {id_: meter for id_, meter in self._meters.items() if not meter.idle(now)}
        self._counted.clear()
        self._sweep_at = max(_KEPT, 2 * len(self._meters))


class Permit:
    """One request's part of its caller's limits."""

    __slots__ = ("_clock", "_counted", "_taken", "_told")

    def __init__(self, clock: Clock, counted: Sequence[Counted], told: Sequence[Told]) -> None:
        self._clock = clock
        self._counted = counted
        self._told = told
        self._taken: list[tuple[Step, int]] | None = None

    def take(self, need: Need) -> bool:
        """Takes what the request needs of every limit. False: it has to be waited for, with `drawn`. Raises ApiError 429."""
        now = self._clock()
        taken: list[tuple[Step, int]] = []
        for kind, most, meter, limit in self._counted:
            amount = need.under(limit) if kind == "tokens" else 1
            step = meter.take(amount, most, now)
            if step is None:
                for (_, _, other, _), (part, back) in zip(self._counted, taken, strict=False):
                    other.give_back(part, back)
                raise self._refusal(need, now)
            taken.append((step, amount))
        self._taken = taken
        return True

    def beside(self) -> Permit:
        """Another one of the same caller, for tokens alone: what candidates beside the first take. Close it when they have ended."""
        return Permit(self._clock, self._tokens(), ())

    def _tokens(self) -> Sequence[Counted]:
        return [each for each in self._counted if each[0] == "tokens"]

    async def drawn(self, need: Need) -> None:
        """Waits until the request has what it needs. Raises ApiError 429."""

    def close(self, spent: int | None) -> None:
        """The request has ended. spent: the tokens that it used; None: not known, it is taken to be what was estimated."""
        taken, self._taken = self._taken, None
        if taken is None:
            return
        for (kind, _, meter, _), (step, amount) in zip(self._counted, taken, strict=True):
            if kind == "concurrency":
                meter.give_back(step, amount)
            elif kind == "tokens" and spent is not None:
                if spent <= amount:
                    meter.give_back(step, amount - spent)
                else:
                    meter.add(spent - amount, self._clock())

    def headers(self) -> list[Header]:
        """`x-ratelimit-*` of the tightest limit of each kind, as OpenAI writes them."""
        now = self._clock()
        found: list[Header] = []
        for remaining, reset, limits in self._told:
            left, tightest, header = min([(most - meter.used(now), meter, header) for most, meter, header in limits], key=_FIRST)
            found += header, (remaining, b"%d" % left if left > 0 else b"0"), (reset, duration(tightest.reset_s(now)))
        return found

    def _refusal(self, need: Need, now: float) -> ApiError:
        waits = [(meter.wait_s(need.under(limit), most, now), limit, meter) for _, most, meter, limit in self._counted]
        wait_s, limit, meter = max(waits, key=lambda each: each[0])
        return refusal(limit, need.under(limit), meter.used(now), wait_s)


def _told(counted: Sequence[Counted]) -> Sequence[Told]:
    found = []
    for kind, (most_of, remaining, reset) in _HEADERS.items():
        limits = [(most, meter, (most_of, b"%d" % most)) for own, most, meter, _ in counted if own == kind]
        if limits:
            found.append((remaining, reset, limits))
    return found


def refusal(limit: Limit, amount: int, used: int, wait_s: float) -> ApiError:
    """What somebody is told who asks for more than is left. wait_s: after so long there is enough; infinite: never."""
    kind, _, name = limit.subject.partition(" ")
    what = f"{_PER[limit.kind]} of {kind} `{name}`"
    if amount > limit.most:
        message = f"This request is larger than what may be used at all: {what}: limit {limit.most}, requested {amount}."
        return ApiError(429, "rate_limit_exceeded", message, headers=(NO_RETRY,))
    message = f"Rate limit reached for {what}: limit {limit.most}, used {used}, requested {amount}."
    if limit.kind != "concurrency":
        wait_s = (math.floor(wait_s * 1e3) + 1) / 1e3  # never too short, however numbers are rounded
        message += f" Please try again in {duration(wait_s).decode()}."
    return ApiError(429, "rate_limit_exceeded", message, headers=retry_after(wait_s))


def duration(seconds: float) -> bytes:
    """As OpenAI writes it: 0s, 120ms, 1.5s, 6m0s; rounded up to a millisecond."""
    ms = math.ceil(seconds * 1e3)
    if ms < 1_000:
        return b"%dms" % ms if ms > 0 else b"0s"
    if ms < 60_000:
        return b"%gs" % (ms / 1e3)
    return b"%dm%gs" % (ms // 60_000, ms % 60_000 / 1e3)
