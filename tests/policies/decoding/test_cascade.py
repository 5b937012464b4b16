"""A cascade: when the cheap answer serves, when the strong model is asked, and what serves where it fails."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from itertools import permutations
from typing import Any

import pytest

from policies.decoding.registry import strategy
from policies.decoding.strategy import SAMPLER, NoneLeft, Sample, Strategy, Won
from tests.support.roles import Asked, FakeRoles, Reply, left_open_by_nobody, nobody, sample, winner

DEAR = sample(9, "It is 42.")


def made(**params: Any) -> Strategy:
    return strategy("cascade", params)


def roles(*cheap: Sample, strong: tuple[Sample, ...] = (DEAR,), grade: str | None = None) -> FakeRoles:
    return FakeRoles({SAMPLER: list(cheap), "strong": list(strong)}, nobody if grade is None else lambda _: f"So.\nVerdict: {grade}")


def answers(*texts: str) -> list[Sample]:
    return [sample(index, text) for index, text in enumerate(texts)]


def sure(nats: float) -> Sample:
    return sample(0, "It is 41.", logprobs=[nats - 0.1, nats + 0.1])


async def test_agreement_keeps_the_cheap_answer() -> None:
    """By default escalating is worth it below a chance of 1 - 0.2 / 0.8 = 0.75."""
    fake = roles(*answers("It is 42.", "42", "**42**"))
    assert await winner(made(), fake) == Won(0, "kept", {0: 1.0})
    assert fake.sampled == [(SAMPLER, 3)]


async def test_who_disagrees_is_escalated() -> None:
    fake = roles(*answers("It is 41.", "It is 42.", "It is 42."))
    assert await winner(made(), fake) == Won(9, "escalated", {1: 2 / 3})
    assert fake.sampled == [(SAMPLER, 3), ("strong", 1)]
    assert await winner(made(price=0.3), roles(*answers("It is 41.", "It is 42.", "It is 42."))) == Won(1, "kept", {1: 2 / 3})


async def test_a_threshold_is_taken_as_it_is() -> None:
    split = answers("It is 41.", "It is 42.", "It is 42.")
    assert (await winner(made(threshold=0.66), roles(*split))).why == "kept"
    assert (await winner(made(threshold=0.67), roles(*split))).why == "escalated"
    assert (await winner(made(threshold=0.0), roles(*answers("It is 1.", "It is 2.", "It is 3.")))).why == "kept"


async def test_answers_that_did_not_come_agree_with_nobody() -> None:
    assert await winner(made(), roles(sample(0, "It is 41."))) == Won(9, "escalated", {0: 1 / 3})


@pytest.mark.parametrize(("nats", "why"), [(-0.30, "kept"), (-0.33, "escalated")])
async def test_log_probability(nats: float, why: str) -> None:
    """1 / (1 + exp(-(3 + 6 l))) is 3/4 at l = (ln 3 - 3) / 6 = -0.317."""
    cascade = made(check="logprob")
    won = await winner(cascade, roles(sure(nats)))
    assert won.why == why and won.scores == {0: pytest.approx(1 / (1 + math.exp(-3 - 6 * nats)))}
    assert cascade.needs.logprobs and cascade.needs.roles == {"strong"} and cascade.most == 2 and cascade.asks == 0


async def test_a_log_probability_beyond_all_measure() -> None:
    assert (await winner(made(check="logprob", b=1_000), roles(sure(-900.0)))).scores == {0: 0.0}


@pytest.mark.parametrize(
    ("grade", "why", "right"), [("5", "kept", 0.95), ("4", "kept", 0.8), ("3", "escalated", 0.5), ("1", "escalated", 0.05)]
)
async def test_a_judge_s_grade(grade: str, why: str, right: float) -> None:
    cascade, fake = made(check="judge"), roles(sample(0, "<think>hm</think>It is 41."), grade=grade)
    won = await winner(cascade, fake)
    assert (won.why, won.scores) == (why, {0: right})
    (asked,) = fake.asked
    assert asked.role == "judge" and asked.most == 1_024
    assert "It is 41." in asked.prompt and "What is 6 times 7?" in asked.prompt and "hm" not in asked.prompt
    assert cascade.needs.roles == {"strong", "judge"} and cascade.asks == 2


async def test_a_check_that_says_nothing() -> None:
    """No log-probabilities; a judge that fails; prose that cannot be compared."""
    prose = answers(
        "Rome fell.\n\nIt took long, as such things do.",
        "Nobody knows.\n\nMany have asked, and few agreed.",
        "Well.\n\nWho can say it now?",
    )
    for check, cheap in (("logprob", [sample(0, "It is 41.")]), ("judge", [sample(0, "It is 41.")]), ("agreement", prose)):
        assert await winner(made(check=check), roles(*cheap)) == Won(9, "escalated_unchecked", {0: 0.5})
        assert await winner(made(check=check, unknown=0.8), roles(*cheap)) == Won(0, "kept_unchecked", {0: 0.8})


@pytest.mark.parametrize(
    "strong",
    [(), (sample(9, "It is", finish="length"),), (sample(9, "<think>so</think>"),)],
    ids=["nothing", "cut", "only thoughts"],
)
async def test_where_the_strong_model_fails_the_cheap_one_serves(strong: tuple[Sample, ...]) -> None:
    won = await winner(made(), roles(*answers("It is 41.", "It is 42.", "It is 43."), strong=strong))
    assert (won.index, won.why) == (0, "strong_failed")


async def test_an_error_of_the_strong_model_costs_no_answer() -> None:
    class Refusing(FakeRoles):
        async def sample(self, n: int, role: str = SAMPLER) -> AsyncGenerator[Sample, None]:
            if role == "strong":
                raise LookupError("too long a prompt")
            async for each in super().sample(n, role):
                yield each

    split = answers("It is 41.", "It is 42.", "It is 43.")
    assert (await winner(made(), Refusing(split))).why == "strong_failed"
    with pytest.raises(LookupError):
        await winner(made(), Refusing([]))


async def test_no_cheap_answer() -> None:
    assert await winner(made(price=5.0), roles()) == Won(9, "escalated")
    with pytest.raises(NoneLeft):
        await winner(made(), roles(strong=()))


async def test_a_cheap_answer_without_end_is_right_with_no_chance() -> None:
    cut = [sample(index, "The answer is", finish="length") for index in range(3)]
    assert await winner(made(), roles(*cut)) == Won(9, "escalated", {0: 0.0})
    assert await winner(made(), roles(*cut, strong=())) == Won(0, "strong_failed", {0: 0.0})
    as_bad = sample(9, "The answer may be", finish="length")
    assert (await winner(made(), roles(*cut, strong=(as_bad,)))).index == 9
    assert (await winner(made(price=0.9), roles(*cut))).why == "kept"  # not worth it: 0.8 is less


@pytest.mark.parametrize(
    ("nats", "grade", "won"),
    [
        (-0.30, "3", Won(9, "escalated", {0: 0.5})),
        (-0.33, "5", Won(0, "kept", {0: 0.95})),
        (-0.30, None, Won(0, "kept_unchecked", {0: 1 / (1 + math.exp(-1.2))})),
    ],
)
async def test_in_doubt_the_judge_decides(nats: float, grade: str | None, won: Won) -> None:
    """c / (K s) = 0.02 / (0.8 x 0.25) = 0.1, so within 0.9 x 0.25 = 0.226 of 0.75."""
    fake = roles(sure(nats), grade=grade)
    told = await winner(made(check="logprob", judge_price=0.02), fake)
    assert (told.index, told.why) == (won.index, won.why) and told.scores == pytest.approx(won.scores)
    assert fake.asked


@pytest.mark.parametrize(("nats", "asked"), [(-0.50, False), (-0.46, True), (-0.001, False)])
async def test_beyond_doubt_the_judge_is_not_asked(nats: float, asked: bool) -> None:
    """Chances of 0.5, 0.56 and 0.95; the margin with c = 0.02 reaches from 0.524 to 0.976, with c = 0.03 (z* 0.68) from 0.58 to 0.92."""
    fake = roles(sure(nats), grade="4")
    await winner(made(check="logprob", judge_price=0.02 if nats < -0.1 else 0.03), fake)
    assert bool(fake.asked) is asked


async def test_who_is_quick_has_no_advantage() -> None:
    told = set()
    for order in permutations(range(3)):
        fake = FakeRoles(
            {SAMPLER: answers("It is 41.", "It is 42.", "It is 42.")}, delays={index: place for place, index in enumerate(order)}
        )
        won = await winner(made(threshold=0.5), fake)
        told.add((won.index, won.why))
    assert told == {(1, "kept")}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"first": 1}, "at least 2"),
        ({"grades": [0.1, 0.3, 0.2, 0.8, 0.9]}, "must not fall"),
        ({"grades": [0.1, 0.9]}, "grades"),
        ({"value": 0}, "value"),
        ({"check": "hope"}, "check"),
    ],
)
def test_what_cannot_be_configured(params: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made(**params)


async def test_nothing_is_left_open() -> None:
    def replies(asked: Asked) -> Reply:
        return "Verdict: 2" if asked.nth else "no verdict"

    def fake() -> FakeRoles:
        return FakeRoles({SAMPLER: answers("It is 41.", "It is 42."), "strong": [DEAR]}, replies)

    await left_open_by_nobody(made(check="judge", first=2), fake)
    await left_open_by_nobody(made(), fake)
