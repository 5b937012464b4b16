"""Best of n: n answers at once, and the one with the highest score.

    logprob    mean log-probability of its tokens: what the model itself finds likeliest, length aside
    shortest   fewest tokens, of those that came to their end: long answers are the lost ones, in many models
    longest    most tokens, of those that came to their end
    judge      the grade, 1 to 5, that the role `judge` gives each by itself; of equals, whose answer has more votes
    reward     what the role `reward`, a model that scores answers, says of each as soon as it has ended; of equals, the same
    verifier   what the operator's own service says, 0 to 1; likewise

With a scorer, answers may come in rounds, until one is good enough or more are not worth it; what still runs is cancelled.

    optscale   the first score of at least `level`, and at most N* answers (policies/pricing/optscale.py)
    hazard     the first that the verifier passes, and as many as the hazard pays for (policies/pricing/hazard.py)

Where nobody grades or scores any, `logprob` decides if the engine tells of it, else the vote.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Annotated, Final, Literal

import msgspec

from models.response import CHECKED, VOTED, Response
from policies.answers.ballots import ballot
from policies.answers.confidence import mean_logprob, read
from policies.answers.equivalence import joined
from policies.answers.votes import tally
from policies.decoding.scored import scored
from policies.decoding.strategy import REWARD, VERIFIER, Needs, NoneLeft, Progress, Question, Roles, Sample, Won, whole
from policies.judging.asking import FAILED, JUDGE, TRIES
from policies.judging.lineup import judged
from policies.judging.pointwise import ROOM, grades
from policies.pricing.hazard import PRIORS, FirstPass, fit
from policies.pricing.optscale import FirstGood

_SILENT: Final = 3
"""Scores in a row that fail, after which no round is begun: more answers would not be told apart either."""
Count = Annotated[int, msgspec.Meta(ge=1, le=64)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """n: most answers. select: by what. verdict_tokens: of a judge's reply, thoughts too. stop: see above, or `never`: all at once. level:
    the least score that is good enough, on the scorer's scale; hazard: 1 by default. counts: of each calibration question, answers
    and how many of them were good enough, of which the prior is fitted; by default that of code by a small model. confidence: of optscale,
    that a question within reach gets such a score. worth: of a good answer, in sampled tokens, 0: any. least: a hazard that is too small
    whatever a sample costs. batch: answers at once, in each round."""

    n: Annotated[int, msgspec.Meta(ge=2, le=64)] = 4
    select: Literal["logprob", "shortest", "longest", "judge", "reward", "verifier"] = "logprob"
    verdict_tokens: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 2_048
    stop: Literal["never", "optscale", "hazard"] = "never"
    level: Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)] | None = None
    counts: Annotated[
        tuple[tuple[Annotated[int, msgspec.Meta(ge=1)], Annotated[int, msgspec.Meta(ge=0)]], ...], msgspec.Meta(max_length=10_000)
    ] = ()
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.9
    worth: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    least: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    batch: Count = 1

    def __post_init__(self) -> None:
        """What the fields alone do not say."""
        if self.stop == "optscale" and self.select not in (REWARD, VERIFIER):
            raise ValueError("`stop: optscale` needs scores: `select: reward` or `select: verifier`")
        if self.stop == "optscale" and self.level is None:
            raise ValueError("`stop: optscale` needs `level`: the least score that is good enough")
        if self.stop == "hazard" and self.select != VERIFIER:
            raise ValueError("`stop: hazard` needs `select: verifier`")
        if any(good > answers for answers, good in self.counts):
            raise ValueError("`counts`: each [answers, good ones], of which there are no more")

    @property
    def good(self) -> float:
        """The least score that is good enough."""
        return 1.0 if self.level is None else self.level


class BestOfN:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._more = _rule(params)

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        select = self._params.select
        roles, scorers = frozenset({select} & {JUDGE}), frozenset({select} & {REWARD, VERIFIER})
        asked = {JUDGE: Question(JUDGE, ROOM, self._params.verdict_tokens), REWARD: Question(REWARD, ROOM, 0)}.get(select)
        return Needs(logprobs=select == "logprob", roles=roles, scorers=scorers, asked=asked)

    @property
    def most(self) -> int:
        """See Strategy."""
        return self._params.n

    @property
    def asks(self) -> int:
        """See Strategy."""
        tries = {JUDGE: TRIES, REWARD: 1, VERIFIER: 1}
        return tries.get(self._params.select, 0) * self._params.n

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        select = self._params.select
        return Response(f"best_of_n/{select}", self._params.n, CHECKED if select == VERIFIER else VOTED)

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy. Who came to no end, or says nothing, only wins where nobody else is left; of equals, the first."""
        samples: list[Sample] = []
        if self._params.select in (REWARD, VERIFIER):
            async with aclosing(self._scored(roles)) as events:
                async for event in events:
                    yield event
            return
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

    async def _scored(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        params = self._params
        samples: list[Sample] = []
        scores: dict[int, float] = {}
        silent = 0
        while silent < _SILENT and (more := self._more(samples, scores)):
            ended = len(samples)
            async with aclosing(scored(roles, params.select, more)) as coming:
                async for event in coming:
                    if isinstance(event, Sample):
                        samples.append(event)
                        yield Progress(len(samples))
                    elif event.score is None:
                        silent += 1
                    else:
                        silent, scores[event.index] = 0, event.score
                        if params.stop != "never" and event.score >= params.good:
                            break
            if len(samples) == ended:
                break  # nobody answers any more: what there is has to do
        if not samples:
            raise NoneLeft
        yield self._found(sorted(samples, key=lambda each: each.index), scores)

    def _found(self, samples: Sequence[Sample], scores: Mapping[int, float]) -> Won:
        params = self._params
        able = judged(samples)
        if not able:
            return Won(samples[0].index, "no_score")
        votes = _votes(able)
        if not scores:
            return _unscored(able, votes, f"{params.select}_failed")
        enough = params.stop != "never" and max(scores.values()) >= params.good
        why = {"optscale": "good_enough", "hazard": "passed"}[params.stop] if enough else params.select
        return _best(able, scores, why, votes)

    async def _judged(self, roles: Roles, samples: Sequence[Sample]) -> Won:
        able = judged(samples)
        if len(able) < 2:
            return Won((able or samples)[0].index, "only_one" if able else "no_score")
        votes = _votes(able)
        marks = await grades(roles, able, self._params.verdict_tokens)
        if not marks:
            return _unscored(able, votes, FAILED)
        return _best(able, {index: float(mark) for index, mark in marks.items()}, "judge", votes)


def _best(samples: Sequence[Sample], scores: Mapping[int, float], why: str, votes: Mapping[int, float] = MappingProxyType({})) -> Won:
    able = [each for each in samples if whole(each)] or samples
    scored = [each for each in able if each.index in scores]
    if not scored:
        return Won(able[0].index, "no_score")
    best = max(scored, key=lambda each: (scores[each.index], votes.get(each.index, 0.0)))  # the first of equals
    return Won(best.index, why, scores)


def _unscored(samples: Sequence[Sample], votes: Mapping[int, float], why: str) -> Won:
    scores = _logprobs(samples) or votes
    return _best(samples, scores, why) if scores else Won(samples[0].index, why)


def _logprobs(samples: Sequence[Sample]) -> dict[int, float]:
    known = {each.index: mean_logprob(logprobs.chosen) for each in samples if (logprobs := read(each.logprobs)) is not None}
    return {index: mean for index, mean in known.items() if mean is not None}


def _votes(samples: Sequence[Sample]) -> dict[int, float]:
    """How many give the answer that each gives."""
    found = tally(joined([ballot(each.said).key for each in samples]))
    return {samples[place].index: group.weight for group in found.groups for place in group.members}


def _rule(params: Params) -> Callable[[Sequence[Sample], Mapping[int, float]], int]:
    """How many more to draw, given those that ended and their scores. Who has no score counts as one that is not good enough."""
    prior = fit(params.counts) if params.counts else PRIORS["code"]

    def tokens(samples: Sequence[Sample]) -> float:
        return float(sum(each.tokens for each in samples))

    if params.stop == "optscale":
        good = FirstGood(
            params.good, prior, params.confidence, params.worth, params.least, first=params.batch, then=params.batch, cap=params.n
        )
        return lambda samples, scores: good.more([scores.get(each.index, -math.inf) for each in samples], tokens(samples))
    if params.stop == "hazard":
        passing = FirstPass(prior, params.worth, params.least, params.batch, params.n)
        passed = params.good
        return lambda samples, scores: passing.more(len(samples), sum(each >= passed for each in scores.values()), tokens(samples))
    return lambda samples, _: 0 if samples else params.n


def build(params: Params) -> BestOfN:
    """The strategy of these parameters."""
    return BestOfN(params)
