"""Best of n: n answers at once, and the one with the highest score.

    logprob    mean log-probability of its tokens: what the model itself finds likeliest, length aside
    shortest   fewest tokens, of those that came to their end: long answers are the lost ones, in many models
    longest    most tokens, of those that came to their end
    judge      the grade, 1 to 5, that the role `judge` gives each by itself; of equals, whose answer has more votes

Where a judge grades none, `logprob` decides if the engine tells of it, else the vote.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Annotated, Literal

import msgspec

from policies.answers.ballots import ballot
from policies.answers.confidence import mean_logprob, read
from policies.answers.equivalence import joined
from policies.answers.votes import tally
from policies.decoding.strategy import Needs, NoneLeft, Progress, Roles, Sample, Won, whole
from policies.judging.asking import FAILED, JUDGE, TRIES
from policies.judging.lineup import judged
from policies.judging.pointwise import grades


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """n: answers. select: by what. verdict_tokens: of a judge's reply, thoughts too."""

    n: Annotated[int, msgspec.Meta(ge=2, le=64)] = 4
    select: Literal["logprob", "shortest", "longest", "judge"] = "logprob"
    verdict_tokens: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 2_048


class BestOfN:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        select = self._params.select
        return Needs(logprobs=select == "logprob", roles=frozenset({JUDGE} if select == "judge" else ()))

    @property
    def most(self) -> int:
        """See Strategy."""
        return self._params.n

    @property
    def asks(self) -> int:
        """See Strategy."""
        return TRIES * self._params.n if self._params.select == "judge" else 0

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy. Who came to no end, or says nothing, only wins where nobody else is left; of equals, the first."""
        samples: list[Sample] = []
        async with aclosing(roles.sample(self._params.n)) as coming:
            async for sample in coming:
                samples.append(sample)
                yield Progress(len(samples))
        if not samples:
            raise NoneLeft
        samples.sort(key=lambda each: each.index)
        yield (
            await self._judged(roles, samples)
            if self._params.select == "judge"
            else _best(samples, self._scores(samples), self._params.select)
        )

    def _scores(self, samples: Sequence[Sample]) -> dict[int, float]:
        if self._params.select == "logprob":
            return _logprobs(samples)
        sign = -1.0 if self._params.select == "shortest" else 1.0
        return {each.index: sign * each.tokens for each in samples}

    async def _judged(self, roles: Roles, samples: Sequence[Sample]) -> Won:
        able = judged(samples)
        if len(able) < 2:
            return Won((able or samples)[0].index, "only_one" if able else "no_score")
        votes = _votes(able)
        marks = await grades(roles, able, self._params.verdict_tokens)
        if not marks:
            scores = _logprobs(able) or votes
            return _best(able, scores, FAILED) if scores else Won(able[0].index, FAILED)
        return _best(able, {index: float(mark) for index, mark in marks.items()}, "judge", votes)


def _best(samples: Sequence[Sample], scores: Mapping[int, float], why: str, votes: Mapping[int, float] = MappingProxyType({})) -> Won:
    able = [each for each in samples if whole(each)] or samples
    scored = [each for each in able if each.index in scores]
    if not scored:
        return Won(able[0].index, "no_score")
    best = max(scored, key=lambda each: (scores[each.index], votes.get(each.index, 0.0)))  # the first of equals
    return Won(best.index, why, scores)


def _logprobs(samples: Sequence[Sample]) -> dict[int, float]:
    known = {each.index: mean_logprob(logprobs.chosen) for each in samples if (logprobs := read(each.logprobs)) is not None}
    return {index: mean for index, mean in known.items() if mean is not None}


def _votes(samples: Sequence[Sample]) -> dict[int, float]:
    """How many give the answer that each gives."""
    found = tally(joined([ballot(each.said).key for each in samples]))
    return {samples[place].index: group.weight for group in found.groups for place in group.members}


def build(params: Params) -> BestOfN:
    """The strategy of these parameters."""
    return BestOfN(params)
