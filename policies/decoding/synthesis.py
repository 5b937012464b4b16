"""Synthesis (Zhang et al. 2025, arXiv 2501.01668): a model reads several answers and writes one of its own, which is the answer given.

    candidates   of the plan's own model, and of further roles: a mixture of agents (Wang et al. 2024, arXiv 2406.04692)
    vote         by default they vote first, and only where they do not agree something is written
    synthesis    up to `group` answers at once: shuffled, without names and thoughts
    larger       in groups of about the same size, and what is written there is read in turn

The role `synthesizer` writes; where it is not configured, the plan's own model. Where it fails, the vote stands. Tool calls cannot be
written by it: where at least half of the candidates call tools, the vote on the calls decides; else those that do are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import pairwise
from random import Random
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from models.response import Response
from policies.answers.ballots import ballot
from policies.answers.equivalence import OPTIONS, Wanted, joined
from policies.answers.votes import Tally, tally
from policies.decoding.mixture import together
from policies.decoding.strategy import SAMPLER, Needs, NoneLeft, Progress, Question, Roles, Sample, Unanswered, Won
from policies.judging.asking import room
from policies.judging.lineup import beside, judged
from policies.prompts.synthesise import frame, synthesis_prompt

SYNTHESIZER: Final = "synthesizer"
"""The role that writes."""
FAILED: Final = "synthesizer_failed"
"""Why something else decided: the vote, or where nobody can vote, the first."""
WRITTEN: Final = "synthesis"
AGREED: Final = "unanimous"

_MOST: Final = 64
T = TypeVar("T")
Role = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """n: answers of the plan's own model. roles: further ones that answer. samples: of each of them. when: something is written; `split`:
    where more than one answer has votes, or at most half of them vote. group: answers read at once. room: characters of the prompt.
    answer_tokens: of what is written, thoughts too. answer: what is looked for in the candidates. options: letters that may be chosen."""

    n: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = 5
    roles: Annotated[tuple[Role, ...], msgspec.Meta(max_length=16)] = ()
    samples: Annotated[int, msgspec.Meta(ge=1, le=16)] = 1
    when: Literal["split", "always"] = "split"
    group: Annotated[int, msgspec.Meta(ge=2, le=32)] = 8
    room: Annotated[int, msgspec.Meta(ge=8_000, le=1_000_000)] = 48_000
    answer_tokens: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 4_096
    answer: Wanted = "any"
    options: str = OPTIONS

    def __post_init__(self) -> None:
        """What the fields alone do not say."""
        if not 2 <= self.most <= _MOST:
            raise ValueError(f"`n` and `samples` of each of `roles` must make 2 to {_MOST} answers; they make {self.most}")
        if len({SAMPLER, *self.roles}) <= len(self.roles):
            raise ValueError(f"`roles` must be different ones, and `{SAMPLER}` is not among them: it answers anyway")

    @property
    def most(self) -> int:
        """Answers in all."""
        return self.n + self.samples * len(self.roles)


class Synthesis:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        asked = Question(SYNTHESIZER, self._params.room, self._params.answer_tokens)
        return Needs(roles=frozenset({SYNTHESIZER, *self._params.roles}), asked=asked, mixed=bool(self._params.roles))

    @property
    def most(self) -> int:
        """See Strategy."""
        return self._params.most

    @property
    def asks(self) -> int:
        """See Strategy."""
        return _syntheses(self._params.most, self._params.group)

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        # Answers of further models say nothing of the plan's.
        return None if self._params.roles else Response(f"synthesis/{self._params.when}", self._params.n)

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy. Who came to no end, or says nothing, only wins where nobody else is left."""
        params = self._params
        samples: list[Sample] = []
        sources = [roles.sample(params.n), *(roles.sample(params.samples, role) for role in params.roles)]
        async with aclosing(together(sources) if params.roles else sources[0]) as coming:
            async for sample in coming:
                samples.append(sample)
                yield Progress(len(samples))
        if not samples:
            raise NoneLeft
        able = judged(samples)
        callers = [each for each in able if each.said.tool_calls]
        if len(able) < 2:
            yield Won((able or sorted(samples, key=lambda each: each.index))[0].index, "only_one" if able else "none_whole")
        elif 2 * len(callers) >= len(able):
            yield self._voted(callers, "calls")
        else:
            yield await self._decided(roles, [each for each in able if not each.said.tool_calls])

    async def _decided(self, roles: Roles, able: Sequence[Sample]) -> Won:
        if self._agree(able):
            return self._voted(able, AGREED)
        chance = Random(roles.task.seed)  # noqa: S311 - repeats with the request, and guards nothing
        found, why = await self._one_of(roles, chance.sample(able, len(able)), chance)
        return Won(found.index, why) if why != FAILED else self._voted(able, FAILED)

    async def _one_of(self, roles: Roles, hand: Sequence[Sample], chance: Random) -> tuple[Sample, str]:
        """One answer out of all of these, and why it is that one. hand: in an order that does not depend on who was quick."""
        if len(hand) > self._params.group:
            async with asyncio.TaskGroup() as writing:
                tasks = [
                    writing.create_task(self._one_of(roles, part, Random(chance.getrandbits(64))))  # noqa: S311
                    for part in _parts(hand, self._params.group)
                ]
            hand = [task.result()[0] for task in tasks]
            if len(hand) > self._params.group:
                return await self._one_of(roles, hand, chance)
        if len(hand) == 1 or self._agree(hand):
            return self._leading(hand), AGREED
        written = await self._written(roles, hand, chance)
        return (self._leading(hand), FAILED) if written is None else (written, WRITTEN)

    async def _written(self, roles: Roles, hand: Sequence[Sample], chance: Random) -> Sample | None:
        """What the synthesizer makes of them; None: nothing that can be served."""
        most = self._params.answer_tokens
        request, lineup = beside(roles.task.turns, hand, room(roles, SYNTHESIZER, most, self._params.room, frame(len(hand))), chance)
        try:
            sample = await roles.ask(SYNTHESIZER, synthesis_prompt(request, lineup.texts), most)
        except Unanswered:
            return None
        return sample if judged([sample]) else None

    def _agree(self, hand: Sequence[Sample]) -> bool:
        if self._params.when == "always":
            return False
        vote = self._vote(hand)
        return not vote.split and 2 * vote.total > len(hand)

    def _vote(self, hand: Sequence[Sample]) -> Tally:
        return tally(joined([ballot(each.said, self._params.answer, self._params.options).key for each in hand]))

    def _leading(self, hand: Sequence[Sample]) -> Sample:
        chosen = self._vote(hand).chosen
        return hand[0 if chosen is None else chosen]

    def _voted(self, able: Sequence[Sample], why: str) -> Won:
        """By the vote, or the first where nobody has an answer that can be voted on."""
        vote = self._vote(able)
        scores = {able[place].index: group.weight for group in vote.groups for place in group.members}
        return Won(able[vote.chosen or 0].index, why, scores)


def _parts(hand: Sequence[T], size: int) -> list[Sequence[T]]:
    """As few parts of at most that size as there can be, all of about the same."""
    count = -(-len(hand) // size)
    ends = [len(hand) * part // count for part in range(count + 1)]
    return [hand[begins:end] for begins, end in pairwise(ends)]


def _syntheses(n: int, size: int) -> int:
    """How many are written of so many answers, at most."""
    if n <= size:
        return min(1, n - 1)
    parts = _parts(range(n), size)
    return sum(_syntheses(len(part), size) for part in parts) + _syntheses(len(parts), size)


def build(params: Params) -> Synthesis:
    """The strategy of these parameters."""
    return Synthesis(params)
