from __future__ import annotations

import asyncio

import pytest

from gateway.mock.behaviour import Behaviour
from gateway.mock.pace import Pace
from tests.support.clock import run

HEALTHY = Behaviour(first_token_delay_s=0.1, prefill_tokens_per_second=1_000, tokens_per_second=50)


async def due(behaviour: Behaviour, uncached: int, *steps: int) -> list[float]:
    """When the steps are due, and, waited for one after the other, when they are there."""
    pace = Pace(behaviour, HEALTHY, uncached)
    seen = []
    for step in steps:
        await pace.until(step)
        seen.append(asyncio.get_running_loop().time())
        assert pace.due(step) == pytest.approx(seen[-1])
    return seen


@pytest.mark.parametrize(
    ("behaviour", "uncached", "moments"),
    [
        (Behaviour(), 0, [0.1, 0.12, 0.3]),
        (Behaviour(), 500, [0.6, 0.62, 0.8]),  # half a thousand tokens are half a second
        (Behaviour(), 20, [0.12, 0.14, 0.32]),
        (Behaviour(prefill_tokens_per_second=0), 500, [0.1, 0.12, 0.3]),
        (Behaviour(first_token_delay_s=2, tokens_per_second=0), 500, [2.5, 2.5, 2.5]),
        (Behaviour(prefill_tokens_per_second=100), 500, [5.1, 5.12, 5.3]),
    ],
)
def test_the_prompt_then_one_token_after_another(behaviour: Behaviour, uncached: int, moments: list[float]) -> None:
    assert run(due(behaviour, uncached, 0, 1, 10)) == pytest.approx(moments)
