"""A judge who sees the answers side by side."""

from __future__ import annotations

import re
from random import Random

from policies.decoding.strategy import Task
from policies.judging.lineup import Lineup, beside
from policies.judging.listwise import selected
from policies.values.prompt import Turn
from tests.support.roles import Asked, FakeRoles, sample, says

SAMPLES = [sample(index, f"<think>hidden {index}</think>It is {40 + index}.") for index in range(5)]


def place_of(prompt: str, text: str) -> int:
    """Where that answer is shown."""
    head = prompt[: prompt.index(text)]
    return int(re.findall(r"^=== \w+ answer (\d+)$", head, re.MULTILINE)[-1])


def shown(roles: FakeRoles, seed: int) -> tuple[str, Lineup]:
    return beside(roles.task.turns, SAMPLES, 20_000, Random(seed))


async def test_the_place_leads_back_to_the_sample() -> None:
    places = set()
    for seed in range(20):
        roles = FakeRoles(replies=lambda asked: f"Judgment: {place_of(asked.prompt, 'It is 43.')}")
        found = await selected(roles, *shown(roles, seed), 500)
        assert found is not None and (found.index, found.shown) == (3, 5)
        assert roles.asked[0].most == 500
        places.add(found.place)
    assert places == {1, 2, 3, 4, 5}


async def test_the_judge_sees_the_request_and_no_thoughts() -> None:
    roles = FakeRoles(replies=says("Judgment: 1"), task=Task((Turn("system", "Be {brief}."), Turn("user", "6 x 7?")), 1))
    await selected(roles, *shown(roles, 0), 500)
    prompt = roles.asked[0].prompt
    assert "[system]\nBe {brief}.\n[user]\n6 x 7?\n" in prompt
    assert "hidden" not in prompt
    assert all(f"It is {40 + index}." in prompt for index in range(5))


async def test_it_is_asked_again_about_the_same() -> None:
    def replies(asked: Asked) -> str:
        return "I like them all." if asked.nth == 0 else f"Judgment: {place_of(asked.prompt, 'It is 42.')}"

    roles = FakeRoles(replies=replies)
    found = await selected(roles, *shown(roles, 7), 500)
    assert found is not None and found.index == 2
    first, second = (each.prompt for each in roles.asked)
    assert second.startswith(first) and "had no such last line" in second


async def test_no_verdict() -> None:
    for replies in (says(None), says("Judgment: 6")):
        roles = FakeRoles(replies=replies)
        assert await selected(roles, *shown(roles, 7), 500) is None
