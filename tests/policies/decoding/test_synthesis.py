"""Synthesis: who is read, what is written, and what serves where nothing is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest

from policies.decoding.registry import strategy
from policies.decoding.strategy import SAMPLER, NoneLeft, Sample, Strategy, Task, Won
from policies.decoding.synthesis import SYNTHESIZER
from policies.values.answer import Said, ToolCall
from policies.values.prompt import Turn
from tests.support.roles import Asked, FakeRoles, Reply, left_open_by_nobody, sample, winner


def made(**params: Any) -> Strategy:
    return strategy("synthesis", params)


def answers(*texts: str) -> list[Sample]:
    return [sample(index, text) for index, text in enumerate(texts)]


def call(index: int, arguments: str) -> Sample:
    return Sample(index, Said("", (ToolCall("weather", arguments),), "tool_calls"))


def writes(asked: Asked) -> Reply:
    return f"Written {asked.nth}: the answer is 42."


SPLIT = ("It is 41.", "It is 42.", "<think>43?</think>It is 43.")


async def test_what_the_synthesizer_writes_is_the_answer() -> None:
    roles = FakeRoles(answers(*SPLIT), writes)
    assert await winner(made(n=3), roles) == Won(1_000, "synthesis")
    (asked,) = roles.asked
    assert asked.role == SYNTHESIZER and asked.most == 4_096
    assert "What is 6 times 7?" in asked.prompt
    assert all(each in asked.prompt for each in ("It is 41.", "It is 42.", "It is 43.")) and "43?" not in asked.prompt


async def test_who_agrees_needs_nobody() -> None:
    roles = FakeRoles(answers("It is 42.", "The answer is 42", "**42**"), writes)
    assert await winner(made(n=3), roles) == Won(0, "unanimous", {0: 3.0, 1: 3.0, 2: 3.0})
    assert roles.asked == []
    assert (await winner(made(n=3, when="always"), FakeRoles(answers("42", "42", "42"), writes))).why == "synthesis"


async def test_prose_that_cannot_be_compared_is_synthesised() -> None:
    prose = answers("Rome fell.\n\nIt took long, as such things do.", "Nobody knows.\n\nMany have asked, and few agreed.")
    assert (await winner(made(n=2), FakeRoles(prose, writes))).why == "synthesis"


@pytest.mark.parametrize(
    "reply",
    [None, "", "<think>so", Said("It is 4", finish="length"), Said("I cannot.", refused=True)],
    ids=["failed", "empty", "only thoughts", "cut", "refused"],
)
async def test_where_it_fails_the_vote_stands(reply: Reply) -> None:
    roles = FakeRoles(answers("It is 41.", "It is 42.", "It is 42."), lambda _: reply)
    assert await winner(made(n=3), roles) == Won(1, "synthesizer_failed", {0: 1.0, 1: 2.0, 2: 2.0})
    assert len(roles.asked) == 1


async def test_where_nobody_can_vote_the_first_serves() -> None:
    prose = ("Rome fell.\n\nIt took long, as such things do.", "Nobody knows.\n\nMany have asked, and few agreed.")
    candidates = [sample(0, "cut", finish="length"), sample(1, prose[0]), sample(2, prose[1])]
    assert await winner(made(n=3), FakeRoles(candidates)) == Won(1, "synthesizer_failed")


async def test_tool_calls_are_voted_on() -> None:
    candidates = [call(0, '{"city": "Rome"}'), call(1, '{"city":"Paris"}'), call(2, '{"city": "Paris"}'), sample(3, "Which city?")]
    roles = FakeRoles(candidates, writes)
    assert await winner(made(n=4), roles) == Won(1, "calls", {0: 1.0, 1: 2.0, 2: 2.0})
    assert roles.asked == []


async def test_a_call_among_answers_is_left_out() -> None:
    roles = FakeRoles([call(0, "{}"), *(sample(index, text) for index, text in enumerate(SPLIT, 1))], writes)
    assert (await winner(made(n=4), roles)).why == "synthesis"
    assert "weather" not in roles.asked[0].prompt and "3 attempts" in roles.asked[0].prompt


async def test_fewer_than_asked() -> None:
    with pytest.raises(NoneLeft):
        await winner(made(), FakeRoles([], writes))
    assert await winner(made(), FakeRoles(answers("It is 42."), writes)) == Won(0, "only_one")
    cut = [sample(0, "It", finish="length"), sample(1, "It is", finish="length")]
    assert await winner(made(), FakeRoles(cut, writes)) == Won(0, "none_whole")
    assert await winner(made(), FakeRoles([*cut, sample(2, "It is 42.")], writes)) == Won(2, "only_one")


async def test_several_models_are_a_mixture() -> None:
    stock = {SAMPLER: answers("It is 41."), "b": [sample(1, "It is 42."), sample(2, "It is 43.")], "c": [sample(3, "It is 44.")]}
    roles = FakeRoles(stock, writes)
    mixture = made(n=1, roles=["b", "c"], samples=2)
    assert (await winner(mixture, roles)).why == "synthesis"
    assert roles.sampled == [(SAMPLER, 1), ("b", 2), ("c", 2)]
    assert "4 attempts" in roles.asked[0].prompt
    assert mixture.needs.roles == {SYNTHESIZER, "b", "c"} and mixture.most == 5 and mixture.asks == 1


async def test_many_are_read_in_groups() -> None:
    """Nine of at most four: three of three, and what they come to."""
    roles = FakeRoles(answers(*(f"It is {n}." for n in range(9))), lambda asked: f"It is {100 + asked.nth}.")
    synthesis = made(n=9, group=4)
    assert await winner(synthesis, roles) == Won(1_003, "synthesis")
    assert synthesis.asks == len(roles.asked) == 4
    read = [{n for n in range(9) if f"It is {n}." in asked.prompt} for asked in roles.asked[:3]]
    assert [len(each) for each in read] == [3, 3, 3] and set().union(*read) == set(range(9))
    assert all(f"It is {100 + nth}." in roles.asked[3].prompt for nth in range(3))


async def test_groups_that_come_to_the_same_need_nobody_more() -> None:
    roles = FakeRoles(answers(*(f"It is {n}." for n in range(9))), lambda _: "It is 42.")
    won = await winner(made(n=9, group=4), roles)
    assert won.why == "unanimous" and won.index in (1_000, 1_001, 1_002)
    assert len(roles.asked) == 3


async def test_a_group_that_fails_is_represented_by_its_vote() -> None:
    roles = FakeRoles(answers(*(f"It is {n}." for n in range(9))), lambda asked: None if asked.nth == 0 else f"It is {100 + asked.nth}.")
    assert await winner(made(n=9, group=4), roles) == Won(1_003, "synthesis")
    assert sum(f"It is {n}." in roles.asked[3].prompt for n in range(9)) == 1


@pytest.mark.parametrize("group", [2, 3, 5])
@pytest.mark.parametrize("n", [2, 3, 7, 12, 26])
async def test_never_more_questions_than_it_says(n: int, group: int) -> None:
    synthesis = made(n=n, group=group, when="always")
    for came in range(2, n + 1):
        roles = FakeRoles(answers(*(f"It is {k}." for k in range(came))), lambda asked: f"It is {100 + asked.nth}.")
        assert (await winner(synthesis, roles)).why == "synthesis"
        assert len(roles.asked) <= synthesis.asks
    assert len(roles.asked) == synthesis.asks


async def test_who_is_quick_has_no_advantage() -> None:
    told = set()
    for order in permutations(range(4)):
        roles = FakeRoles(
            answers(*(f"It is {n}." for n in range(4))), writes, delays={index: 3 * place for place, index in enumerate(order)}
        )
        won = await winner(made(n=4, group=2, when="always"), roles)
        told.add((won.index, tuple(asked.prompt for asked in roles.asked)))
    assert len(told) == 1


async def test_the_order_is_drawn_of_the_seed() -> None:
    async def prompts(seed: int) -> Sequence[str]:
        roles = FakeRoles(answers(*(f"It is {n}." for n in range(8))), writes, task=Task((Turn("user", "?"),), seed))
        await winner(made(n=8), roles)
        return [asked.prompt for asked in roles.asked]

    assert await prompts(1) == await prompts(1)
    assert len({str(await prompts(seed)) for seed in range(6)}) > 3


async def test_the_prompt_has_its_room() -> None:
    long = [sample(n, f"{n} begins " + "x" * 50_000 + f" It is {n}.") for n in range(4)]
    roles = FakeRoles(long, writes, task=Task((Turn("user", "y" * 50_000),), 1))
    await winner(made(n=4, room=10_000), roles)
    prompt = roles.asked[0].prompt
    assert 9_500 < len(prompt) <= 10_000
    assert all(f"It is {n}." in prompt for n in range(4)) and " begins " not in prompt


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n": 1}, "they make 1"),
        ({"n": 60, "roles": ["a", "b"], "samples": 4}, "they make 68"),
        ({"roles": ["a", "a"]}, "different"),
        ({"roles": ["sampler"]}, "sampler"),
        ({"group": 1}, "group"),
        ({"other": 1}, "other"),
    ],
)
def test_what_cannot_be_configured(params: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**params)


async def test_nothing_is_left_open() -> None:
    for params in ({"n": 5, "group": 2}, {"n": 2, "roles": ("b", "c"), "samples": 2}):

        def roles() -> FakeRoles:
            stock = {SAMPLER: answers(*(f"It is {n}." for n in range(5))), "b": [sample(5, "b"), sample(6, "B")], "c": [sample(7, "c")]}
            return FakeRoles(stock, lambda asked: f"It is {100 + asked.nth}.")

        await left_open_by_nobody(made(**params), roles)
