"""A cascade: a cheap answer first, and the role `strong` only where that is worth its price (policies/pricing/escalation.py).

    check        agreement   the leader's share of the `first` answers
                 logprob     1 / (1 + exp(-(a + b l))), l: mean log-probability of a token of the answer (Platt's scaling)
                 judge       the chance that goes with the grade, 1 to 5, that the role `judge` gives
    right        what the check says: the chance that the cheap answer is right
    escalated    iff right < threshold, or iff (1 - right) p_strong value > price
    in doubt     with `judge_price`, the judge is asked after another check where what it may say is worth that (value of information)

a, b and `grades` are where one may start. Fit them to answers of one's own: a threshold on a chance that is none is worse than a fixed one.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from models.response import Response
from policies.answers.ballots import ballot
from policies.answers.confidence import mean_logprob, read
from policies.answers.equivalence import OPTIONS, Wanted, joined
from policies.answers.votes import Tally, tally
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Roles, Sample, Won
from policies.judging.asking import JUDGE, TRIES
from policies.judging.lineup import judged
from policies.judging.pointwise import ROOM, grades
from policies.pricing.escalation import Escalation, SlowCheck

STRONG: Final = "strong"
"""The role that is asked in the end."""

Chance = Annotated[float, msgspec.Meta(ge=0, le=1)]
Price = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """check: see above. first: cheap answers; by default 3 for agreement, else 1. threshold: the least chance of being right with which the
    cheap answer is served; by default that at which escalating is worth its price. value: of a right answer. price: of escalating, in its
    unit. p_strong: the chance that the strong model is right where the cheap one is wrong. a, b: of logprob. grades: the chance that an
    answer of each grade is right. unknown: the chance where the check says nothing. judge_price: of asking the judge where the check leaves
    a doubt, in the unit of value; by default it is not asked. spread: how far it moves the chance, as a standard deviation. verdict_tokens:
    of its reply, thoughts too. answer: what is looked for in the answers. options: letters that may be chosen."""

    check: Literal["agreement", "logprob", "judge"] = "agreement"
    first: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None
    threshold: Chance | None = None
    value: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 1.0
    price: Price = 0.2
    p_strong: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    a: Annotated[float, msgspec.Meta(ge=-1_000, le=1_000)] = 3.0
    b: Annotated[float, msgspec.Meta(gt=0, le=1_000)] = 6.0
    grades: tuple[Chance, Chance, Chance, Chance, Chance] = (0.05, 0.2, 0.5, 0.8, 0.95)
    unknown: Chance = 0.5
    judge_price: Price | None = None
    spread: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.25
    verdict_tokens: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 1_024
    answer: Wanted = "any"
    options: str = OPTIONS

    def __post_init__(self) -> None:
        """What the fields alone do not say."""
        if self.check == "agreement" and self.first == 1:
            raise ValueError("`agreement` needs at least 2 answers: `first`")
        if list(self.grades) != sorted(self.grades):
            raise ValueError("`grades` must not fall: a better grade is no worse")

    @property
    def cheap(self) -> int:
        """Cheap answers."""
        return self.first or (3 if self.check == "agreement" else 1)


class _Cheap(NamedTuple):
    """The cheap answer. right: the chance that it is. checked: that is what the checks say, all that were made."""

    sample: Sample
    right: float
    checked: bool


class Cascade:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params
        rule = Escalation(params.value, params.price, params.p_strong)
        self._stake = rule.stake
        self._threshold = rule.least if params.threshold is None else params.threshold
        self._doubt = None if params.judge_price is None or params.check == "judge" else SlowCheck(params.judge_price, params.spread)

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        logprobs = self._params.check == "logprob"
        if not self._judges:
            return Needs(logprobs=logprobs, roles=frozenset({STRONG}))
        return Needs(logprobs=logprobs, roles=frozenset({STRONG, JUDGE}), asked=Question(JUDGE, ROOM, self._params.verdict_tokens))

    @property
    def most(self) -> int:
        """See Strategy."""
        return self._params.cheap + 1

    @property
    def asks(self) -> int:
        """See Strategy."""
        return TRIES if self._judges else 0

    @property
    def _judges(self) -> bool:
        return self._params.check == "judge" or self._doubt is not None

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        return None

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy. An answer that came to no end is right with no chance. Where no cheap answer came, the strong model is asked
        whatever it costs; where that fails, the cheap one serves."""
        samples: list[Sample] = []
        async with aclosing(roles.sample(self._params.cheap)) as coming:
            async for sample in coming:
                samples.append(sample)
                yield Progress(len(samples))
        cheap = await self._checked(roles, sorted(samples, key=lambda each: each.index)) if samples else None
        if cheap is not None and cheap.right >= self._threshold:
            yield _won(cheap.sample, "kept", cheap)
            return
        strong = await _escalated(roles, cheap)
        if strong is not None:
            yield Progress(len(samples) + 1)
        if strong is not None and (cheap is None or judged([strong]) or not judged([cheap.sample])):
            yield _won(strong, "escalated", cheap)
        elif cheap is not None:
            yield _won(cheap.sample, "strong_failed", cheap)
        else:
            raise NoneLeft

    async def _checked(self, roles: Roles, samples: Sequence[Sample]) -> _Cheap:
        able = judged(samples)
        if not able:
            return _Cheap(samples[0], 0.0, checked=True)
        vote = tally(joined([ballot(each.said, self._params.answer, self._params.options).key for each in able]))
        chosen = able[vote.chosen or 0]
        found = await self._graded(roles, chosen) if self._params.check == "judge" else self._seen(chosen, vote)
        right = self._params.unknown if found is None else found
        if self._doubt is None or not self._doubt.pays(right, self._threshold, self._stake):
            return _Cheap(chosen, right, found is not None)
        graded = await self._graded(roles, chosen)
        return _Cheap(chosen, right if graded is None else graded, graded is not None)

    def _seen(self, chosen: Sample, vote: Tally) -> float | None:
        """The chance that an answer is right, by what is there; None: that says nothing."""
        if self._params.check == "agreement":
            return vote.v1 / self._params.cheap if vote.total else None
        logprobs = read(chosen.logprobs)
        mean = None if logprobs is None else mean_logprob(logprobs.chosen)
        return None if mean is None else _logistic(self._params.a + self._params.b * mean)

    async def _graded(self, roles: Roles, chosen: Sample) -> float | None:
        grade = (await grades(roles, [chosen], self._params.verdict_tokens)).get(chosen.index)
        return None if grade is None else self._params.grades[grade - 1]


async def _escalated(roles: Roles, cheap: _Cheap | None) -> Sample | None:
    """What the strong model says. Whatever befalls it, a cheap answer is not lost by that."""
    strong = None
    try:
        async with aclosing(roles.sample(1, STRONG)) as coming:
            async for sample in coming:
                strong = sample
    except Exception:
        if cheap is None:
            raise
    return strong


def _won(sample: Sample, why: str, cheap: _Cheap | None) -> Won:
    if cheap is None:
        return Won(sample.index, why)
    return Won(sample.index, why if cheap.checked else f"{why}_unchecked", {cheap.sample.index: cheap.right})


def _logistic(x: float) -> float:
    odds = math.exp(-abs(x))  # never overflows
    return (1.0 if x >= 0.0 else odds) / (1.0 + odds)


def build(params: Params) -> Cascade:
    """The strategy of these parameters."""
    return Cascade(params)
