"""How long a call to one model on one backend would take now, learned from the calls that have ended.

    wait for the first token   q + a + b u + c n      u    prompt tokens that the engine has not cached
    each further token         d + e n                n    calls that run there, without this one
    the call                   q + a + b u + c n + (o - 1) (d + e n),  for an answer of o tokens
    q                          w T / p                w    calls that are sent before this one: in a queue in front of it
                                                      T, p mean time of a call, and the most that have lately run at once: where p run, one
                                                           of T seconds ends every T / p (Little's law)

a to e are at least 0, so more load, a longer prompt and a longer answer never look quicker. How they are fitted: decayed_fit.py. Of a call
whose first token nobody saw (it was no stream) only the whole is known: it is split as the fit would split it, which is the E step of EM.
"""

from __future__ import annotations

import math
from typing import Final

from models.decayed_fit import HALF_LIFE, Line, Plane

# Of a small model on one device: it matters for the first calls only. Seconds; of a thousand prompt tokens.
_FIRST: Final = (0.05, 0.1, 0.002)
_NEXT: Final = (0.02, 0.0002)
_TOKENS: Final = 1e-3
# An average over fewer tokens than this tells less of the next call than one over many.
_MANY: Final = 16.0
_RATE: Final = 1.0 / HALF_LIFE


class Latency:
    """Of one model on one backend. count: calls that it has learned from."""

    __slots__ = ("_first", "_most", "_next", "_total_s", "count")

    def __init__(self) -> None:
        self.count = 0
        self._first = Plane(_FIRST, sum(_FIRST))
        self._next = Line(_NEXT, sum(_NEXT))
        self._total_s = 0.0
        self._most = 1.0

    def observe(self, inflight: int, prompt_tokens: int, cached: int, ttft_s: float | None, output_tokens: int, total_s: float) -> None:
        """A call that ended well. inflight: others of ours there, when it was sent. ttft_s: from then to the first token; None: it was no
        stream. total_s: from then to the end. Times that cannot be (not finite, below 0, the first token after the end) are left out."""
        if not 0.0 <= total_s < math.inf or (ttft_s is not None and not 0.0 <= ttft_s <= total_s):
            return
        uncached = (prompt_tokens - cached) * _TOKENS if prompt_tokens > cached else 0.0
        further = output_tokens - 1
        if ttft_s is None:
            first = self._first.at(uncached, inflight)
            rest = further * self._next.at(inflight) if further > 0 else 0.0
            ttft_s = total_s * first / (first + rest) if rest > 0.0 else total_s
        self._first.observe(uncached, inflight, ttft_s)
        if further > 0:
            self._next.observe(inflight, (total_s - ttft_s) / further, further / (further + _MANY))
        self.count += 1
        # A plain mean until there are enough of them.
        rate = _RATE if self.count > HALF_LIFE else 1.0 / self.count
        self._total_s += rate * (total_s - self._total_s)
        running = inflight + 1.0
        self._most = running if running > self._most else self._most + _RATE * (running - self._most)

    def predict(self, inflight: int, waiting: int, prompt_tokens: int, expected_cached: float, output_tokens: float) -> float:
        """Seconds from now to the end of a call. waiting: calls that are sent before it. Fractions of tokens are expectations."""
        further = output_tokens - 1.0
        found = self.first_token(inflight, waiting, prompt_tokens, expected_cached)
        return found + further * self._next.at(inflight) if further > 0.0 else found

    def first_token(self, inflight: int, waiting: int, prompt_tokens: int, expected_cached: float) -> float:
        """Seconds from now to its first token."""
        uncached = (prompt_tokens - expected_cached) * _TOKENS if prompt_tokens > expected_cached else 0.0
        found = self._first.at(uncached, inflight)
        return found + waiting * self._total_s / self._most if waiting > 0 else found
