"""How busy an engine says it is: the few numbers of its /metrics that a choice of replica looks at.

Names, in Prometheus' text format (several series of one name are several engines or models behind one address):

    vLLM       num_requests_running, num_requests_waiting     sums; they count sequences: a request with n = 4 is four
               kv_cache_usage_perc (gpu_cache_usage_perc)     0..1, the fullest
    llama.cpp  requests_processing, requests_deferred, kv_cache_usage_ratio (of older servers)

The prefix is `vllm:` or, where something in between has cleaned the names, `vllm_`, also as `ray_vllm_`. What is not there, or is no
number that makes sense, is unknown, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LIMIT: Final = 1 << 20
"""Bytes of an answer that are read; vLLM's has some 60,000."""

_SERIES: Final = re.compile(
    rb"^(?:ray_)?(?:vllm|llamacpp)[:_]"
    rb"(?:(?P<running>num_requests_running|requests_processing)"
    rb"|(?P<waiting>num_requests_waiting|requests_deferred)"
    rb"|(?:kv_cache_usage_perc|gpu_cache_usage_perc|kv_cache_usage_ratio))"
    rb"(?:\{.*\})?[ \t]+(?P<value>[0-9.eE+-]{1,32})(?=[ \t\r]|$)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Scraped:
    """What an engine said at `at` (monotonic clock, seconds). None: unknown.

    running, waiting: sequences. kv_usage: share of the KV cache that is in use.
    """

    at: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None

    def age_s(self, now: float) -> float:
        """Seconds since."""
        return max(0.0, now - self.at)

    def queued(self, now: float, half_life_s: float = 5.0) -> float:
        """Sequences that wait in the engine, halved for each half-life since; 0 when unknown."""
        return (self.waiting or 0.0) * math.pow(0.5, self.age_s(now) / half_life_s)


def scraped(text: bytes, at: float) -> Scraped:
    """Reads the first `LIMIT` bytes of a /metrics answer that came at `at`. Whatever the text is, it raises nothing."""
    if len(text) > LIMIT:
        text = text[: text.rfind(b"\n", 0, LIMIT) + 1]
    running, waiting, usage = [], [], []
    for match in _SERIES.finditer(text):
        value = _number(match["value"])
        if value is None:
            continue
        if match["running"]:
            running.append(value)
        elif match["waiting"]:
            waiting.append(value)
        elif value <= 1.0:
            usage.append(value)
    return Scraped(at, _sum(running), _sum(waiting), max(usage, default=None))


def _number(text: bytes) -> float | None:
    """A finite number that is not negative."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < math.inf else None


def _sum(values: Sequence[float]) -> float | None:
    total = sum(values)
    return total if values and total < math.inf else None
