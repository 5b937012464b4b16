"""Samples that are scored one by one, each as soon as it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from policies.decoding.strategy import Roles, Sample
from policies.judging.lineup import judged


class Scored(msgspec.Struct, frozen=True):
    """What was said of the sample of that index. score: None: nothing."""

    index: int
    score: float | None


async def scored(roles: Roles, scorer: str, n: int) -> AsyncGenerator[Sample | Scored, None]:
    """n samples more as they end, and what the scorer says of each that came to its end and says something. Closing it cancels what still
    runs, samples and scores. Raises what sampling raises."""
    events: asyncio.Queue[Sample | Scored | Exception | None] = asyncio.Queue()
    tasks: list[asyncio.Task[None]] = []

    async def score(sample: Sample) -> None:
        try:
            (found,) = await roles.score(scorer, [sample])
            events.put_nowait(Scored(sample.index, found))
        except Exception as error:  # whoever takes it raises it
            events.put_nowait(error)

    async def draw() -> None:
        try:
            async with aclosing(roles.sample(n)) as coming:
                async for sample in coming:
                    events.put_nowait(sample)
                    if judged([sample]):
                        tasks.append(asyncio.create_task(score(sample), name=f"score {sample.index}"))
            events.put_nowait(None)
        except Exception as error:  # the same
            events.put_nowait(error)

    tasks.append(asyncio.create_task(draw(), name="samples to score"))
    drawing, ended, heard = True, 0, 0
    try:
        while drawing or heard < ended:
            event = await events.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                drawing = False
                continue
            if isinstance(event, Scored):
                heard += 1
            else:
                ended += len(judged([event]))
            yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
