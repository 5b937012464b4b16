"""Candidates of several roles at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from policies.decoding.mixture import together
from policies.decoding.strategy import SAMPLER, Sample
from tests.support.roles import FakeRoles, sample


async def _broken(*before: Sample) -> AsyncGenerator[Sample, None]:
    for each in before:
        yield each
    raise LookupError("refused")


def _two() -> FakeRoles:
    return FakeRoles({SAMPLER: [sample(0, "a"), sample(1, "b")], "other": [sample(2, "c")]}, delays={0: 5, 1: 9, 2: 2})


async def _all(*sources: AsyncGenerator[Sample, None]) -> list[int]:
    async with aclosing(together(sources)) as coming:
        return [each.index async for each in coming]


async def test_each_as_it_ends_and_all_at_once() -> None:
    roles = _two()
    assert await _all(roles.sample(2), roles.sample(1, "other")) == [2, 0, 1]
    assert roles.sampled == [(SAMPLER, 2), ("other", 1)]
    assert roles.most_open == 2 and roles.open == 0


async def test_whoever_leaves_closes_all() -> None:
    roles = _two()
    async with aclosing(together([roles.sample(2), roles.sample(1, "other")])) as coming:
        await anext(coming)
        assert roles.open == 1  # the other one has ended
    assert roles.open == 0


async def test_one_that_fails_leaves_the_others() -> None:
    roles = _two()
    assert await _all(_broken(), roles.sample(2)) == [0, 1]
    assert await _all(_broken(sample(7, "x"))) == [7]


async def test_where_nothing_comes_the_reason_does() -> None:
    with pytest.raises(LookupError, match="refused"):
        await _all(FakeRoles().sample(1), _broken())
    assert await _all(FakeRoles().sample(1)) == []
