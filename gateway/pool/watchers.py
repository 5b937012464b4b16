"""One task per backend that looks at it again and again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from gateway.pool.backend import Backend

log = logging.getLogger("trilemma.pool")

Look = Callable[[], Awaitable[float]]
"""Looks once; how many seconds until the next time."""

# However often something asks for a look at once, there is this pause between two.
_LEAST_S: Final = 0.1
_AFTER_FAULT_S: Final = 5.0


class Watchers:
    """Owned by a task group; `watch` again replaces the set. name: of what they do. made: what looks at a backend.

    A look that raises is logged, and the next one comes all the same: neither the other backends' nor whatever else the group holds may end
    of it.
    """

    def __init__(self, group: asyncio.TaskGroup, name: str, made: Callable[[Backend], Look]) -> None:
        self._group = group
        self._name = name
        self._made = made
        self._watched: dict[Backend, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def watch(self, backends: Iterable[Backend]) -> None:
        """Looks at exactly these from now on, but for those that the operator has disabled."""
        wanted = dict.fromkeys(each for each in backends if not each.disabled)
        for backend in self._watched.keys() - wanted.keys():
            self._watched.pop(backend)[0].cancel()
        for backend in wanted:
            if backend in self._watched:
                continue
            at_once = asyncio.Event()
            task = self._group.create_task(self._run(backend, at_once), name=f"{self._name} {backend.name}")
            self._watched[backend] = task, at_once

    def at_once(self, backend: Backend) -> None:
        """The next look at this backend comes now."""
        if backend in self._watched:
            self._watched[backend][1].set()

    async def _run(self, backend: Backend, at_once: asyncio.Event) -> None:
        look = self._made(backend)
        loop = asyncio.get_running_loop()
        while True:
            at_once.clear()
            try:
                pause = await look()
            except Exception:
                log.exception("%s %s failed", self._name, backend.name)
                pause = _AFTER_FAULT_S
            looked = loop.time()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await at_once.wait()
                await asyncio.sleep(looked + _LEAST_S - loop.time())
