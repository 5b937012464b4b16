"""Candidates of several roles at once: what a mixture of agents reads (Wang et al. 2024, arXiv 2406.04692)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from policies.decoding.strategy import Sample


async def together(sources: Sequence[AsyncGenerator[Sample, None]]) -> AsyncGenerator[Sample, None]:
    """The samples of all, each as it ends. The sources begin in their order. One that raises is at its end: what another model gives may
    still serve. If nothing comes of any, the first error is raised. Closing it closes all."""
    ended: asyncio.Queue[Sample | None] = asyncio.Queue()
    errors: list[Exception | None] = [None] * len(sources)

    async def read(place: int) -> None:
        try:
            async with aclosing(sources[place]) as source:
                async for sample in source:
                    ended.put_nowait(sample)
        except Exception as error:
            errors[place] = error
        finally:
            ended.put_nowait(None)

    tasks = [asyncio.create_task(read(place), name=f"source {place}") for place in range(len(sources))]
    try:
        running, came = len(tasks), False
        while running:
            sample = await ended.get()
            if sample is None:
                running -= 1
            else:
                came = True
                yield sample
        error = next((each for each in errors if each is not None), None)
        if error is not None and not came:
            raise error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
