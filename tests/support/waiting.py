"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], what: str = "the condition", within_s: float = 10.0) -> None:
    """Returns once the condition holds; AssertionError if it does not in time."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():  # noqa: ASYNC110 (it looks at what has no event: tasks, sockets, counts)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"{what}: not within {within_s:g} s") from None
