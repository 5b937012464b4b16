"""Watching the files of the configuration in force, by looking at them once a second.

Looking works where notifications do not: network file systems, mounted ConfigMaps (which swap a symbolic link),
renames over the file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gateway.config.files import Stamp, stamp

Files = Callable[[], Mapping[Path, Stamp | None]]
"""The files that the configuration in force was read from, with their stamps from then (Loaded.files)."""


async def watch(
    files: Files,
    reload: Callable[[], Awaitable[object]],
    *,
    logger: logging.Logger,
    interval: float = 1.0,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Call `reload` after each change of a file, until cancelled. interval: seconds between two looks.

    A change before the first look counts. A file that is not there is waited for: its coming back is the change. A
    reload that raises is logged, and the next change tries again.
    """
    seen: dict[Path, Stamp | None] = {}
    missing: set[Path] = set()
    while True:
        in_force = files()
        seen = {path: seen.get(path, then) for path, then in in_force.items()}
        now = await asyncio.to_thread(_stamps, tuple(seen))  # a network file system may hang
        for path in now:
            if now[path] is None and path not in missing:
                logger.warning("%s is not there; the configuration in force stays", path)
        missing = {path for path in now if now[path] is None}
        changed = [path for path in now if now[path] not in (None, seen[path])]
        seen.update((path, now[path]) for path in changed)
        if changed:
            logger.info("changed: %s", ", ".join(map(str, changed)))
            try:
                await reload()
            except Exception:
                logger.exception("reloading the configuration failed; the one before stays in force")
        await sleep(interval)


def _stamps(paths: tuple[Path, ...]) -> dict[Path, Stamp | None]:
    return {path: stamp(path) for path in paths}
