"""Replicas that the configuration lists."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from gateway.pool.discovery.endpoint import merged
from gateway.pool.discovery.source import Found, News
from gateway.pool.discovery.spec import StaticSpec


class Static:
    """Says once what the configuration says."""

    def __init__(self, spec: StaticSpec) -> None:
        self._spec = spec

    async def watch(self) -> AsyncGenerator[News, None]:
        """See Source.watch."""
        yield Found(merged(self._spec.endpoints))
