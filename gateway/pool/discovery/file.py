"""A file that lists replicas, taken up when it changes. Only a whole, valid list counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from gateway.config import tree
from gateway.config.files import Stamp, read, reason, stamp
from gateway.pool.discovery.listing import replicas
from gateway.pool.discovery.source import Failed, Found, News
from gateway.pool.discovery.spec import FileSpec


class File:
    """Looks at the file's stamp, and reads it when that is another."""

    def __init__(self, spec: FileSpec, *, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        self._spec = spec
        self._sleep = sleep

    async def watch(self) -> AsyncGenerator[News, None]:
        """See Source.watch."""
        seen: Stamp | None = None
        news: News | None = None
        while True:
            seen, said = await asyncio.to_thread(_look, self._spec.path, seen, news)  # a network file system may hang
            yield said
            news = said
            await self._sleep(self._spec.interval_s)


def _look(path: Path, seen: Stamp | None, news: News | None) -> tuple[Stamp | None, News]:
    """The file's stamp now, and what there is to say of it; `news` was said of it when its stamp was `seen`."""
    before = stamp(path)
    if before is not None and before == seen and news is not None:
        return seen, news
    try:
        text = read(path, tree.MAX_BYTES).decode()
    except OSError as error:
        return None, Failed(f"{path}: {reason(error)}")
    except UnicodeDecodeError:
        return before, Failed(f"{path}: not UTF-8 text")
    after = stamp(path)
    if before != after:  # somebody writes it just now: what was read may be half of it
        return None, Failed(f"{path}: changed while it was read")
    try:
        return after, Found(replicas(text, json=path.suffix == ".json"))
    except ValueError as error:
        return after, Failed(f"{path}: {error}")
