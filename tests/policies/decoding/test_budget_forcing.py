"""Budget forcing: thoughts that are closed, thoughts that go on, and what is told of both."""

from __future__ import annotations

from typing import Any

import pytest

from policies.decoding.budget_forcing import BudgetForcing, Params
from policies.decoding.registry import strategy
from policies.decoding.strategy import Needs, NoneLeft, Task, Won, Written
from policies.values.prompt import Turn
from tests.support.roles import FakeRoles, left_open_by_nobody, sample, says, winner

ASKED = (Turn("user", "What is 6 times 7?"),)


def made(**params: Any) -> BudgetForcing:
    return BudgetForcing(Params(**params))


async def test_thoughts_that_end_by_themselves_are_left_alone() -> None:
    roles = FakeRoles(writes=[Written("6 x 7 is 42.", "stop", 8), Written("42", "stop", 2)])
    assert await winner(made(cap=100), roles) == Won(0, "ended")
    assert roles.wrote == [("<think>\n", 100, ("</think>",)), ("<think>\n6 x 7 is 42.\n</think>\n\n", None, ())]
    assert roles.said == ("6 x 7 is 42.", "42", "stop")


async def test_thoughts_without_end_are_closed_at_the_cap() -> None:
    roles = FakeRoles(writes=[Written("6 and 6 and", "length", 20), Written("42", "stop", 2)])
    assert (await winner(made(cap=20), roles)).why == "capped"
    assert [most for _, most, _ in roles.wrote] == [20, None]
    assert roles.wrote[1][0].endswith("6 and 6 and\n</think>\n\n")


async def test_too_short_thoughts_go_on() -> None:
    """10 of at least 25: on, twice; what was thought counts against the cap."""
    parts = [Written("First.\n", "stop", 10), Written(" More.", "stop", 10), Written(" Enough.", "stop", 10), Written("42", "stop", 1)]
    roles = FakeRoles(writes=parts)
    assert (await winner(made(cap=100, least=25, wait="\nWait"), roles)).why == "waited"
    assert [(text, most) for text, most, _ in roles.wrote] == [
        ("<think>\n", 100),
        ("<think>\nFirst.\nWait", 90),
        ("<think>\nFirst.\nWait More.\nWait", 80),
        ("<think>\nFirst.\nWait More.\nWait Enough.\n</think>\n\n", None),
    ]


@pytest.mark.parametrize(("waits", "calls"), [(0, 2), (1, 3), (2, 4)])
async def test_a_model_that_will_not_think_is_not_asked_for_ever(waits: int, calls: int) -> None:
    roles = FakeRoles(writes=[Written("", "stop", 1)] * (waits + 1) + [Written("42", "stop", 1)])
    await winner(made(least=50, waits=waits), roles)
    assert len(roles.wrote) == calls


async def test_a_quarter_of_the_bound_on_the_answer_is_left_for_what_is_said() -> None:
    roles = FakeRoles(writes=[Written("Hm", "length", 75), Written("42", "length", 25)], task=Task(ASKED, 1, most=100))
    await winner(made(cap=1_000), roles)
    assert [most for _, most, _ in roles.wrote] == [75, 25]
    assert roles.said == ("Hm", "42", "length")


async def test_what_cannot_be_written_on_is_asked_once() -> None:
    roles = FakeRoles([sample(0, "42")])
    assert await winner(made(cap=10), roles) == Won(0, "unforced")
    assert roles.wrote == []


async def test_the_engine_may_do_it() -> None:
    strategy_ = made(cap=64, by="engine")
    assert strategy_.needs == Needs(thinking=64)
    roles = FakeRoles([sample(0, "42")], writes=[])
    assert await winner(strategy_, roles) == Won(0, "engine")


async def test_the_prompt_speaks_of_a_budget() -> None:
    roles = FakeRoles(writes=[Written("42.", "stop", 3), Written("42", "stop", 1)])
    await winner(made(tell=80), roles)
    assert roles.told == ["Let's think step by step and use less than 80 tokens."]


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("[[120]]", 120),
        ("<think>300?</think>\n[[ 45 ]]", 45),
        ("about 30 tokens", 30),
        ("3 steps, so [[90]]", 90),
        ("none", None),
        (None, None),
        ("[[0]]", None),
    ],
)
async def test_a_model_may_estimate_it(reply: str | None, told: int | None) -> None:
    roles = FakeRoles(replies=says(reply), writes=[Written("42.", "stop", 3), Written("42", "stop", 1)])
    await winner(made(tell="estimate"), roles)
    assert roles.told == ([] if told is None else [f"Let's think step by step and use less than {told} tokens."])
    assert [(each.role, each.most) for each in roles.asked] == [("estimator", 64)]
    assert "What is 6 times 7?" in roles.asked[0].prompt


async def test_where_not_a_word_can_be_written_a_plain_answer_is_asked_for() -> None:
    assert await winner(made(), FakeRoles([sample(0, "42")], writes=[])) == Won(0, "unforced")


async def test_what_fails_is_no_answer() -> None:
    with pytest.raises(NoneLeft):
        await winner(made(), FakeRoles(writes=[]))
    for told in (1, 0):  # an engine may not say how many tokens there were
        with pytest.raises(NoneLeft):
            await winner(made(), FakeRoles([sample(0, "42")], writes=[Written("Hm", "stop", told)]))
    with pytest.raises(NoneLeft):
        await winner(made(), FakeRoles())


async def test_nothing_is_left_open() -> None:
    parts = [Written("Hm", "stop", 1), Written("Hm", "stop", 1), Written("42", "stop", 1)]
    await left_open_by_nobody(made(least=10, waits=1, tell="estimate"), lambda: FakeRoles(replies=says("[[9]]"), writes=parts))
    await left_open_by_nobody(made(by="engine"), lambda: FakeRoles([sample(0, "42")]))


@pytest.mark.parametrize(
    "params", [{"cap": 0}, {"cap": 10, "least": 11}, {"by": "engine", "least": 1}, {"tell": "much"}, {"closes": ""}, {"n": 2}]
)
def test_what_cannot_work(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="budget_forcing"):
        strategy("budget_forcing", params)


def test_what_it_needs() -> None:
    assert (made().needs, made().most, made().asks) == (Needs(writes=True), 1, 0)
    estimated = made(tell="estimate")
    assert (estimated.needs.roles, estimated.asks) == (frozenset({"estimator"}), 1)
    asked = estimated.needs.asked
    assert asked is not None and (asked.role, asked.most) == ("estimator", 64)
    assert 8_000 < asked.room < 8_500
