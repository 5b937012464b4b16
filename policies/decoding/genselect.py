"""GenSelect (Moshkov et al. 2025, arXiv 2504.16891; Toshniwal et al. 2025, arXiv 2507.17797): a model reads the answers side by side, and
chooses one.

    vote      the answers vote first; by default the judge is asked only where they do not agree
    choice    up to `group` answers at once: shuffled, without names and thoughts
    larger    `repeats` random subsets of that size; the answer (its key, of policies/answers) that is chosen most often wins

The role `judge` chooses; where it is not configured, the plan's own model. Where it fails, the vote stands.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from random import Random
from typing import Annotated, Literal

import msgspec

from models.response import Response
from policies.answers.ballots import ballot
from policies.answers.equivalence import OPTIONS, Key, Wanted, joined
from policies.answers.votes import Tally, tally
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Roles, Sample, Won
from policies.judging.asking import FAILED, JUDGE, TRIES, room
from policies.judging.lineup import beside, hands, judged
from policies.judging.listwise import Selected, selected
from policies.prompts.select import frame


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """n: answers. when: the judge is asked; `split`: where more than one answer has votes, or at most half of them vote. group: how many
    are shown at once. repeats: choices, where there are more. room: characters of the judge's prompt. verdict_tokens: of its reply,
    thoughts too. answer: what is looked for in them. options: letters that may be chosen."""

    n: Annotated[int, msgspec.Meta(ge=2, le=64)] = 8
    when: Literal["split", "always"] = "split"
    group: Annotated[int, msgspec.Meta(ge=2, le=16)] = 8
    repeats: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    room: Annotated[int, msgspec.Meta(ge=8_000, le=1_000_000)] = 48_000
    verdict_tokens: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 4_096
    answer: Wanted = "any"
    options: str = OPTIONS


class GenSelect:
    """The strategy."""

    def __init__(self, params: Params) -> None:
        self._params = params

    @property
    def needs(self) -> Needs:
        """See Strategy."""
        return Needs(roles=frozenset({JUDGE}), asked=Question(JUDGE, self._params.room, self._params.verdict_tokens))

    @property
    def most(self) -> int:
        """See Strategy."""
        return self._params.n

    @property
    def asks(self) -> int:
        """See Strategy."""
        return TRIES * (1 if self._params.n <= self._params.group else self._params.repeats)

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        return Response(f"genselect/{self._params.when}", self._params.n)

    async def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """See Strategy. Who came to no end, or says nothing, only wins where nobody else is left."""
        samples: list[Sample] = []
        async with aclosing(roles.sample(self._params.n)) as coming:
            async for sample in coming:
                samples.append(sample)
                yield Progress(len(samples))
        if not samples:
            raise NoneLeft
        able = judged(samples)
        if len(able) < 2:
            yield Won((able or sorted(samples, key=lambda each: each.index))[0].index, "only_one" if able else "none_whole")
            return
        keys = joined([ballot(each.said, self._params.answer, self._params.options).key for each in able])
        vote = tally(keys)
        if self._params.when == "split" and not vote.split and 2 * vote.total > len(able):
            yield _voted(able, vote, "unanimous")
            return
        found = await self._choices(roles, able)
        yield _elected(able, keys, vote, found) if found else _voted(able, vote, FAILED)

    async def _choices(self, roles: Roles, able: Sequence[Sample]) -> list[Selected]:
        """Those that the judge made."""
        chance, size = Random(roles.task.seed), self._params.group  # noqa: S311 - it repeats with the request, and guards nothing
        shown = hands(able, size, self._params.repeats, chance) if len(able) > size else [able]
        most, wished = self._params.verdict_tokens, self._params.room
        lineups = [beside(roles.task.turns, hand, room(roles, JUDGE, most, wished, frame(len(hand))), chance) for hand in shown]
        async with asyncio.TaskGroup() as asking:
            tasks = [asking.create_task(selected(roles, request, lineup, most)) for request, lineup in lineups]
        return [found for task in tasks if (found := task.result()) is not None]


def _voted(able: Sequence[Sample], vote: Tally, why: str) -> Won:
    """By the vote, or the first where nobody has an answer that can be voted on."""
    scores = {able[place].index: group.weight for group in vote.groups for place in group.members}
    return Won(able[0 if vote.chosen is None else vote.chosen].index, why, scores)


def _elected(able: Sequence[Sample], keys: Sequence[Key | None], vote: Tally, found: Sequence[Selected]) -> Won:
    """The answer that was chosen most often, of equals the one with more votes; and of those who give it, who was chosen most often
    himself, of equals the first. Scores: how often its answer was chosen."""
    answers = {each.index: key if key is not None else each.index for each, key in zip(able, keys, strict=True)}
    votes = {group.key: group.votes for group in vote.groups}
    own = Counter(each.index for each in found)
    chosen = Counter(answers[each.index] for each in found)

    def rank(each: Sample) -> tuple[int, int, int]:
        answer = answers[each.index]
        return chosen[answer], votes[answer] if isinstance(answer, Key) else 0, own[each.index]

    best = max(able, key=rank)
    scores = {each.index: float(chosen[answers[each.index]]) for each in able}
    return Won(best.index, "judge", scores, [(each.shown, each.place) for each in found])


def build(params: Params) -> GenSelect:
    """The strategy of these parameters."""
    return GenSelect(params)
