"""Best of n: who is chosen by what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import pytest

from policies.decoding.best_of_n import BestOfN, Params, build
from policies.decoding.registry import strategy
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Sample, Strategy, Won
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


def scoring(select: str = "reward", **params: Any) -> Strategy:
    return strategy("best_of_n", {"n": 4, "select": select, **params})


@pytest.mark.parametrize("select", ["reward", "verifier"])
async def test_the_best_score(select: str) -> None:
    """Each is scored as soon as it has ended, not after all; of those that fail there is no score, and any score goes before none."""
    samples = [*ANSWERS[:3], sample(3, "Answer: 44", finish="length")]
    roles = FakeRoles(samples, scores={0: 0.25, 1: None, 2: 0.125, 3: 0.75}, delays={0: 1, 1: 2, 2: 30, 3: 3})
    made = scoring(select)
    assert await events(made, roles) == [*map(Progress, (1, 2, 3, 4)), Won(0, select, {0: 0.25, 2: 0.125})]
    assert roles.scored == [(select, 0), (select, 1), (select, 2)], "one that was cut off is no answer"
    assert roles.most_open == 2, "the first was scored while others ran"
    assert roles.sampled == [("sampler", 4)]
    assert (made.needs, made.asks) == (
        Needs(scorers=frozenset({select}), asked=Question("reward", 42_000, 0) if select == "reward" else None),
        4,
    )


async def test_of_equal_scores_the_vote_decides() -> None:
    roles = FakeRoles(ANSWERS, scores=dict.fromkeys(range(4), 1.0))
    assert await winner(scoring("verifier"), roles) == Won(1, "verifier", dict.fromkeys(range(4), 1.0))


async def test_a_scorer_that_fails_for_all() -> None:
    assert await winner(scoring(), FakeRoles(LIKELY)) == Won(1, "reward_failed", {0: -1.5, 1: pytest.approx(-1.1)})
    assert await winner(scoring("verifier"), FakeRoles(ANSWERS)) == Won(1, "verifier_failed", {0: 1.0, 1: 2.0, 2: 2.0, 3: 1.0})
    cut = [sample(0, "Answer", finish="length")]
    assert await winner(scoring(), FakeRoles(cut, scores={0: 1.0})) == Won(0, "no_score")
    with pytest.raises(NoneLeft):
        await winner(scoring(), FakeRoles())


async def test_the_first_good_score_ends_it() -> None:
    """One at a time by default; what comes after is never begun."""
    roles = FakeRoles(ANSWERS, scores={0: 1.5, 1: 2.0, 2: 9.0})
    assert await winner(scoring(stop="optscale", level=2.0), roles) == Won(1, "good_enough", {0: 1.5, 1: 2.0})
    assert roles.sampled == [("sampler", 1)] * 2
    roles = FakeRoles(ANSWERS, scores={0: 0.5, 1: 1.0})
    assert await winner(scoring("verifier", stop="hazard"), roles) == Won(1, "passed", {0: 0.5, 1: 1.0})
    roles = FakeRoles(ANSWERS, scores={0: 0.5, 1: 1.0})
    assert await winner(scoring("verifier", stop="hazard", level=0.5), roles) == Won(0, "passed", {0: 0.5})


async def test_what_still_runs_is_not_waited_for() -> None:
    """In a round of four the last to end is good; the one that goes on for ever, as a sample or as a score, is cancelled."""
    for slow in ({"delays": {0: 10**9}}, {"score_delays": {0: 10**9}}):
        roles = FakeRoles(ANSWERS, scores={0: 9.0, 1: 0.0, 2: 0.0, 3: 3.0}, **slow)
        found = await winner(scoring(stop="optscale", level=3.0, batch=4), roles)
        assert found == Won(3, "good_enough", {1: 0.0, 2: 0.0, 3: 3.0})


async def test_it_is_given_up() -> None:
    """optscale: counts of 10 and 10 fit q = 1/2 well (a, b large), so N* at 0.9 is ceil(ln 0.1 / ln 0.5) = 4. hazard: the cap is n. Where
    the scorer fails three times in a row, more answers would not help."""
    many = [sample(index, f"Answer: {index}", tokens=10) for index in range(20)]
    half = {"stop": "optscale", "level": 1.0, "n": 16, "counts": [[1000, 500]] * 20}
    roles = FakeRoles(many, scores={index: index / 100 for index in range(20)})
    found = await winner(scoring(**half), roles)
    assert (found.index, found.why, len(roles.sampled)) == (3, "reward", 4)
    roles = FakeRoles(many, scores=dict.fromkeys(range(20), 0.0))
    assert (await winner(scoring("verifier", stop="hazard", n=8, batch=3), roles)).why == "verifier"
    assert roles.sampled == [("sampler", 3), ("sampler", 3), ("sampler", 2)]
    # hazard 0.5 x worth 19 < 10 tokens: it pays once, where nothing is known of tokens yet
    roles = FakeRoles(many, scores=dict.fromkeys(range(20), 0.0))
    await winner(scoring("verifier", stop="hazard", n=8, worth=19.0, counts=[[1000, 500]] * 20), roles)
    assert len(roles.sampled) == 1
    roles = FakeRoles(many)
    assert (await winner(scoring("verifier", stop="hazard", n=8), roles)).why == "verifier_failed"
    assert len(roles.sampled) == 3
    roles = FakeRoles(many[:2], scores={0: 0.0, 1: 0.0})
    assert (await winner(scoring("verifier", stop="hazard", n=8), roles)).index == 0, "fewer than asked still answer"


@pytest.mark.parametrize(
    "params",
    [
        {"stop": "optscale", "level": 1.0},
        {"select": "reward", "stop": "optscale"},
        {"select": "reward", "stop": "hazard"},
        {"select": "verifier", "counts": [[2, 3]]},
    ],
)
def test_what_makes_no_sense_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="best_of_n: `"):
        strategy("best_of_n", params)


@pytest.mark.parametrize("params", [{}, {"stop": "optscale", "level": 0.5, "batch": 2}, {"stop": "optscale", "level": 2.0}])
async def test_no_score_is_left_open(params: dict[str, Any]) -> None:
    scores = {0: 0.0, 1: None, 2: 1.0, 3: 0.25}
    await left_open_by_nobody(scoring(**params), lambda: FakeRoles(ANSWERS, scores=scores, score_delays={0: 3, 2: 2}))


async def test_what_fails_of_our_own_is_not_hidden() -> None:
    class Broken(FakeRoles):
        async def score(self, role: str, samples: Sequence[Sample]) -> list[float | None]:
            raise RuntimeError(f"ours: {role} of {len(samples)}")

    roles = Broken(ANSWERS)
    with pytest.raises(RuntimeError, match="ours"):
        await winner(scoring(), roles)
    assert roles.open == 0


@pytest.mark.parametrize("select", ["logprob", "shortest", "longest", "judge", "reward", "verifier"])
async def test_whoever_is_quick_has_no_advantage(select: str) -> None:
    made = strategy("best_of_n", {"n": 3, "select": select})
    samples = [sample(index, f"Answer: {index}", tokens=5, logprobs=[-1.0]) for index in range(3)]
    for order in permutations(range(3)):
        roles = FakeRoles(samples, says("Verdict: 3"), delays=dict(enumerate(order)), scores=dict.fromkeys(range(3), 0.5))
        assert (await winner(made, roles)).index == 0
    with pytest.raises(NoneLeft):
        await winner(made, FakeRoles())


@pytest.mark.parametrize("reply", ["Verdict: 2", "none", None])
async def test_nothing_is_left_open(reply: str | None) -> None:
    await left_open_by_nobody(BestOfN(Params(n=4, select="judge")), lambda: FakeRoles(ANSWERS, says(reply)))


def test_what_it_needs() -> None:
    made = strategy("best_of_n", {"n": 5, "select": "judge"})
    assert (made.needs, made.most, made.asks) == (Needs(roles=frozenset({"judge"}), asked=Question("judge", 42_000, 2_048)), 5, 10)
    made = strategy("best_of_n", {"n": 5})
    assert (made.needs, made.most, made.asks) == (Needs(logprobs=True), 5, 0)
