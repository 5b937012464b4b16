"""Best of n: who is chosen by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import permutations

import pytest

from policies.decoding.best_of_n import BestOfN, Params, build
from policies.decoding.registry import strategy
from policies.decoding.strategy import Needs, NoneLeft, Progress, Won
from tests.support.roles import Asked, FakeRoles, Reply, events, left_open_by_nobody, nobody, sample, says, winner

LENGTHS = [sample(0, "one two", tokens=2), sample(1, "one", tokens=1), sample(2, "one two three", finish="length", tokens=3)]
LIKELY = [sample(0, "a", logprobs=[-1.0, -2.0]), sample(1, "b", logprobs=[-1.0, -1.2, -1.1]), sample(2, "c")]
ANSWERS = [sample(0, "Answer: 41"), sample(1, "Answer: 42"), sample(2, "Answer: 42."), sample(3, "Answer: 43")]


def grading(marks: Mapping[str, Reply]) -> Callable[[Asked], Reply]:
    """A judge that knows its replies by what an answer says."""
    return lambda asked: next(mark for text, mark in marks.items() if f"\n{text}\n===" in asked.prompt)


async def test_the_likeliest() -> None:
    assert await winner(build(Params(n=3)), FakeRoles(LIKELY)) == Won(1, "logprob", {0: -1.5, 1: pytest.approx(-1.1)})
    assert await winner(build(Params(n=3)), FakeRoles(LENGTHS)) == Won(0, "no_score")


async def test_the_shortest_and_the_longest_that_is_whole() -> None:
    assert await winner(build(Params(n=3, select="shortest")), FakeRoles(LENGTHS)) == Won(1, "shortest", {0: -2.0, 1: -1.0, 2: -3.0})
    assert await winner(build(Params(n=3, select="longest")), FakeRoles(LENGTHS)) == Won(0, "longest", {0: 2.0, 1: 1.0, 2: 3.0})
    assert (await winner(build(Params(n=3, select="longest")), FakeRoles(LENGTHS[2:]))).index == 2


async def test_the_best_grade() -> None:
    roles = FakeRoles(
        ANSWERS, grading({"Answer: 41": "Verdict: 2", "Answer: 42": "Verdict: 3", "Answer: 42.": "Verdict: 4", "Answer: 43": "Verdict: 5"})
    )
    made = build(Params(n=4, select="judge"))
    assert await events(made, roles) == [*map(Progress, (1, 2, 3, 4)), Won(3, "judge", {0: 2.0, 1: 3.0, 2: 4.0, 3: 5.0})]
    assert {(each.role, each.most) for each in roles.asked} == {("judge", 2_048)}
    assert len(roles.asked) == roles.most_open == 4


async def test_of_equal_grades_the_vote_decides_and_then_the_index() -> None:
    assert (await winner(build(Params(n=4, select="judge")), FakeRoles(ANSWERS, says("Verdict: 4")))).index == 1
    different = [ANSWERS[3], ANSWERS[0]]
    assert (await winner(build(Params(n=4, select="judge")), FakeRoles(different, says("Verdict: 4")))).index == 0


async def test_only_whole_answers_are_judged() -> None:
    samples = [sample(0, "Answer: 4", finish="length"), sample(1, "<think>Answer: 5"), *ANSWERS[2:]]
    roles = FakeRoles(samples, says("Verdict: 1"))
    assert await winner(build(Params(n=4, select="judge")), roles) == Won(2, "judge", {2: 1.0, 3: 1.0})
    assert len(roles.asked) == 2


async def test_a_grade_that_fails_is_no_grade() -> None:
    """The worst grade goes before none."""
    replies = grading({"Answer: 41": None, "Answer: 42": "Verdict: 9", "Answer: 42.": "none", "Answer: 43": "Verdict: 1"})
    roles = FakeRoles(ANSWERS, replies)
    assert await winner(build(Params(n=4, select="judge")), roles) == Won(3, "judge", {3: 1.0})
    assert len(roles.asked) == 6  # who said nothing readable was asked once more


async def test_a_judge_that_fails_for_all() -> None:
    made = build(Params(n=4, select="judge"))
    assert await winner(made, FakeRoles(LIKELY, nobody)) == Won(1, "judge_failed", {0: -1.5, 1: pytest.approx(-1.1)})
    assert await winner(made, FakeRoles(ANSWERS, says("<think>5"))) == Won(1, "judge_failed", {0: 1.0, 1: 2.0, 2: 2.0, 3: 1.0})
    poems = [sample(1, "Roses are\nred."), sample(2, "Violets are\nblue.")]
    assert await winner(made, FakeRoles(poems, nobody)) == Won(1, "judge_failed")


async def test_one_alone_is_not_judged() -> None:
    roles = FakeRoles([ANSWERS[2], sample(0, "Answer", finish="length")])
    assert await winner(build(Params(n=2, select="judge")), roles) == Won(2, "only_one")
    assert roles.asked == []
    cut = FakeRoles([sample(1, "Answer", finish="length"), sample(0, "Ans", finish="length")])
    assert await winner(build(Params(n=2, select="judge")), cut) == Won(0, "no_score")


@pytest.mark.parametrize("select", ["logprob", "shortest", "longest", "judge"])
async def test_whoever_is_quick_has_no_advantage(select: str) -> None:
    made = strategy("best_of_n", {"n": 3, "select": select})
    samples = [sample(index, f"Answer: {index}", tokens=5, logprobs=[-1.0]) for index in range(3)]
    for order in permutations(range(3)):
        roles = FakeRoles(samples, says("Verdict: 3"), delays=dict(enumerate(order)))
        assert (await winner(made, roles)).index == 0
    with pytest.raises(NoneLeft):
        await winner(made, FakeRoles())


@pytest.mark.parametrize("reply", ["Verdict: 2", "none", None])
async def test_nothing_is_left_open(reply: str | None) -> None:
    await left_open_by_nobody(BestOfN(Params(n=4, select="judge")), lambda: FakeRoles(ANSWERS, says(reply)))


def test_what_it_needs() -> None:
    made = strategy("best_of_n", {"n": 5, "select": "judge"})
    assert (made.needs, made.most, made.asks) == (Needs(roles=frozenset({"judge"})), 5, 10)
    made = strategy("best_of_n", {"n": 5})
    assert (made.needs, made.most, made.asks) == (Needs(logprobs=True), 5, 0)
