"""What became of one request, as its caller saw it."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Kind = Literal["complete", "shed", "refused", "failed", "broken", "truncated", "garbled", "hung", "left"]
"""How a request ended; each has exactly one.

complete   a whole answer (a stream with its [DONE])
shed       503 or 429
refused    any other 4xx
failed     no answer, or a 5xx: nothing of an answer had been sent
broken     a stream that began and ended with exactly one error event
truncated  an answer that began and ended without a word          (a violation)
garbled    200 with something else than an answer, events after an error event, a second error event   (a violation)
hung       no end within the scenario's patience                   (a violation)
left       the caller left, as the scenario had it
"""
KINDS: tuple[Kind, ...] = get_args(Kind)
VIOLATIONS: frozenset[Kind] = frozenset(("truncated", "garbled", "hung"))


class Record(msgspec.Struct, kw_only=True):
    """Grows with the answer. Times in seconds from the start of the load; `at` is when the request was due, whatever kept it.

    head, first, last: the status line, the first and the last event of a stream. errors: error events. stray: events
    that came after an error event. code: the gateway's own word for an error. attempts, overhead_ms, model (that served): as its headers
    tell. uncached: prompt tokens that were computed, as the usage in the answer tells.
    """

    number: int
    load: str
    tenant: str
    at: float
    stream: bool
    slow: bool
    max_tokens: int
    sent: float | None = None
    head: float | None = None
    first: float | None = None
    last: float | None = None
    end: float | None = None
    status: int = 0
    sse: bool = False
    whole: bool = False
    done: bool = False
    valid: bool = False
    events: int = 0
    errors: int = 0
    stray: int = 0
    longest_gap: float = 0.0
    size: int = 0
    retry_after: bool = False
    attempts: int | None = None
    overhead_ms: float | None = None
    model: str | None = None
    uncached: int | None = None
    code: str | None = None
    trouble: str = ""
    left: bool = False
    hung: bool = False

    @property
    def kind(self) -> Kind:
        """How it ended."""
        if self.left:
            return "left"
        if self.hung:
            return "hung"
        if self.status in (429, 503):
            return "shed"
        if self.status == 0 or self.status >= 500:
            return "failed"
        if self.status >= 400:
            return "refused"
        return self._of_answer()

    def _of_answer(self) -> Kind:
        if self.errors > 1 or self.stray:
            return "garbled"
        if self.errors:
            return "broken"
        if self.whole and self.valid:
            return "complete"
        return "truncated" if self.sse or not self.whole else "garbled"

    def good(self, ttft_s: float, total_s: float) -> bool:
        """Complete, and in time; a whole answer has no first event."""
        return self.kind == "complete" and (self.ttft <= ttft_s or not self.sse) and self.total <= total_s

    @property
    def _began(self) -> float:
        """When it was due; timers may also be a little early."""
        return self.at if self.sent is None else min(self.at, self.sent)

    @property
    def ttft(self) -> float:
        """Seconds from when it was due to the first event of its stream; infinite without one."""
        return float("inf") if self.first is None else self.first - self._began

    @property
    def total(self) -> float:
        """Seconds from when it was due to its end; infinite without one."""
        return float("inf") if self.end is None else self.end - self._began
