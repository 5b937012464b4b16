"""The seam under which a source of replicas sits: it says what it found, or why it found nothing, until it is closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from gateway.pool.discovery.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Found:
    """All replicas there are now, each once, in an order that does not depend on chance. Empty: there are none, and that is believed."""

    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """The source could not tell: what it said before stands. `reason`: one line for people, without secrets."""

    reason: str


News = Found | Failed


class Source(Protocol):
    """Where replicas are looked up."""

    def watch(self) -> AsyncGenerator[News, None]:
        """News as it comes; a Found also confirms what has not changed. Ends only where nothing can ever change. Close it after use."""
        ...
