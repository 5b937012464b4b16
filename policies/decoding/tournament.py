"""A tournament of answers: a judge compares pairs, and strengths are fitted to what it says (SWIM: Xu et al. 2025, arXiv 2502.14074).

    players    answers that are the same (policies/answers) are one player, whom the first of them stands for
    prior      a game against strength 1, won and lost; and so many games more, divided as the vote: v / (v + mean v) of them are won
    round      by strength, each meets the next one whom it has not met; who finds nobody rests
    game       both orders are asked at once. Each says 1, 1/2 or 0, and their mean is what is won: who is better first and worse second has
               half of it. Where one order has no judgment, the game does not count, for the other would favour a place
    strength   Bradley-Terry with the prior, after each round (policies/judging/bradley_terry.py)
    end        the leader's log-strength is more than z standard errors above the next one's, or ceil(log2 players) rounds are over, or the
               judge said nothing in a whole round

Judges contradict themselves most between answers that are close. So where the leader is not clear in the end, that one of the first two
wins that has more votes. Where no game counts, the vote decides. Where all answers that can vote say the same, nobody is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Hashable, Mapping, Sequence
from contextlib import aclosing
from random import Random
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.response import Response
from policies.answers.ballots import ballot
from policies.answers.equivalence import OPTIONS, Key, Wanted, joined
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Roles, Sample, Won
from policies.judging.asking import FAILED, JUDGE, TRIES, asked, room
from policies.judging.bradley_terry import Strengths, strengths
from policies.judging.lineup import beside, judged, shown
from policies.prompts.compare import Judgment, compare_prompt, frame, judgment

_ORDERS: Final = 2
_WORTH: Final[Mapping[Judgment, float]] = MappingProxyType({"A": 1.0, "B": 0.0, "tie": 0.5})
_PLACE: Final[Mapping[Judgment, int]] = MappingProxyType({"A": 1, "B": 2})
_DIGITS: Final = 8
"""Of log-strengths: what is less is no lead."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """n: answers. rounds: at most; None: ceil(log2 players). asks: questions to the judge, repeated ones too, at most; None: what the
    rounds take. z: standard errors by which a leader is clear. votes: games that the vote is worth to each player. room: characters of the
    judge's prompt. verdict_tokens: of its reply, thoughts too. criteria: what makes an answer the better one; None: ours. answer: what is
    looked for in answers. options: letters that may be chosen."""

    n: Annotated[int, msgspec.Meta(ge=2, le=64)] = 8
    rounds: Annotated[int, msgspec.Meta(ge=1, le=63)] | None = None
    asks: Annotated[int, msgspec.Meta(ge=_ORDERS * TRIES)] | None = None
    z: Annotated[float, msgspec.Meta(gt=0, le=5)] = 0.5
    votes: Annotated[float, msgspec.Meta(ge=0, le=16)] = 1.0
    room: Annotated[int, msgspec.Meta(ge=8_000, le=1_000_000)] = 24_000
    verdict_tokens: Annotated[int, msgspec.Meta(ge=16, le=65_536)] = 4_096
    criteria: Annotated[str, msgspec.Meta(min_length=1, max_length=4_000)] | None = None
    answer: Wanted = "any"
    options: str = OPTIONS


class Champion(Won, frozen=True):
    """The end of games. why: `tournament`; `close`: the leader was not clear; `vote`: it was before any game; or the judge failed. scores:
    log-strengths. rounds: that were played. games: that count. turned: of these, where the two orders disagree, so that the place decided.
    void: games that do not count. asked: questions to the judge, repeated ones too."""

    rounds: int = 0
    games: int = 0
    turned: int = 0
    void: int = 0
    asked: int = 0


class Player(NamedTuple):
    """Candidates that say the same. sample: stands for them. members: their indices, rising. key: what they say; None: it cannot vote."""

    sample: Sample
    members: tuple[int, ...]
    key: Key | None

    @property
    def votes(self) -> int:
        """How many they are."""
        return len(self.members)


class Tournament:
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
        """See Strategy. Every game in both orders, every question twice."""
        n, most = self._params.n, self._params.asks
        games = min(_rounds(self._params, n) * (n // 2), n * (n - 1) // 2)
        taken = games * _ORDERS * TRIES
        return taken if most is None else min(taken, most)

    @property
    def response(self) -> Response | None:
        """See Strategy."""
        return Response("tournament", self._params.n)

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
        players = seeded(able, self._params.answer, self._params.options)
        if _agree(players, len(able)):
            yield Won(players[0].sample.index, "unanimous", dict.fromkeys(players[0].members, float(players[0].votes)))
            return
        yield await _Table(self._params, roles, players).played(self.asks)


class _Table:
    """The games of one request. Players are known by their places in the seed: those with more votes first."""

    def __init__(self, params: Params, roles: Roles, players: Sequence[Player]) -> None:
        self._params = params
        self._roles = roles
        self._players = players
        self._won: NDArray[np.float64] = np.zeros((len(players), len(players)))
        self._met: set[tuple[int, int]] = set()
        self._games = self._turned = self._asked = 0
        self._places: list[tuple[int, int]] = []

    async def played(self, most: int) -> Champion:
        """All rounds, and who won. most: questions."""
        rounds, fitted = 0, self._fitted()
        while rounds < _rounds(self._params, len(self._players)) and not self._clear(fitted):
            pairs = paired(_ranked(fitted), self._met)[: (most - self._asked) // (_ORDERS * TRIES)]
            if not pairs:
                break
            answered = await self._round(pairs)
            rounds, fitted = rounds + 1, self._fitted()
            if not answered:
                break
        return self._champion(fitted, rounds)

    async def _round(self, pairs: Sequence[tuple[int, int]]) -> bool:
        """Whether the judge said anything."""
        async with asyncio.TaskGroup() as asking:
            orders = [
                (asking.create_task(self._asked_of(request, a, b)), asking.create_task(self._asked_of(request, b, a)))
                for request, a, b in [self._texts(*pair) for pair in pairs]
            ]
        self._met.update(pairs)
        for (one, other), both in zip(pairs, orders, strict=True):
            as_first, as_second = (task.result() for task in both)
            self._places += [(2, _PLACE[each]) for each in (as_first, as_second) if each is not None and each in _PLACE]
            if as_first is None or as_second is None:
                continue
            first, second = _WORTH[as_first], 1.0 - _WORTH[as_second]
            self._games += 1
            self._turned += first != second
            self._won[one, other] += (first + second) / 2.0
            self._won[other, one] += 1.0 - (first + second) / 2.0
        return any(task.result() is not None for both in orders for task in both)

    def _texts(self, one: int, other: int) -> tuple[str, str, str]:
        """The request and the two answers, as they are shown."""
        players, params = self._players, self._params
        space = room(self._roles, JUDGE, params.verdict_tokens, params.room, frame(params.criteria))
        chance = Random(self._roles.task.seed)  # noqa: S311 - both orders are asked, so it decides nothing
        request, lineup = beside(self._roles.task.turns, (players[one].sample, players[other].sample), space, chance)
        texts = dict(zip(lineup.indices, lineup.texts, strict=True))
        return request, texts[players[one].sample.index], texts[players[other].sample.index]

    async def _asked_of(self, request: str, first: str, second: str) -> Judgment | None:
        def prompt(again: bool) -> str:
            self._asked += 1
            return compare_prompt(request, first, second, self._params.criteria, again=again)

        return await asked(self._roles, prompt, judgment, self._params.verdict_tokens)

    def _fitted(self) -> Strengths:
        games, mean = self._params.votes, sum(player.votes for player in self._players) / len(self._players)
        shares = [player.votes / (player.votes + mean) for player in self._players]
        return strengths(self._won, [1.0 + games * share for share in shares], [1.0 + games * (1.0 - share) for share in shares])

    def _clear(self, fitted: Strengths) -> bool:
        """Whether the leader's lead is more than its error."""
        first, second = _ranked(fitted)[:2]
        return fitted.logs[first] - fitted.logs[second] > self._params.z * fitted.error(first, second)

    def _champion(self, fitted: Strengths, rounds: int) -> Champion:
        first, second = _ranked(fitted)[:2]
        why = "tournament"
        if not self._games:
            first, why = 0, FAILED if self._met else "vote"
        elif not self._clear(fitted):
            first, why = second if self._players[second].votes > self._players[first].votes else first, "close"
        scores = {index: fitted.logs[place] for place, player in enumerate(self._players) for index in player.members}
        return Champion(
            self._players[first].sample.index,
            why,
            scores,
            self._places,
            rounds=rounds,
            games=self._games,
            turned=self._turned,
            void=len(self._met) - self._games,
            asked=self._asked,
        )


def seeded(able: Sequence[Sample], answer: Wanted = "any", options: str = OPTIONS) -> list[Player]:
    """The players, those with more votes first, of equals the earlier. able: by index, each with something to show. Answers that cannot be
    compared by form are the same only if they read the same."""
    keys = joined([ballot(sample.said, answer, options).key for sample in able])
    same: dict[Hashable, list[tuple[Sample, Key | None]]] = {}
    for sample, key in zip(able, keys, strict=True):
        same.setdefault(shown(sample.said) if key is None else key, []).append((sample, key))
    players = [Player(group[0][0], tuple(sample.index for sample, _ in group), group[0][1]) for group in same.values()]
    return sorted(players, key=lambda player: (-player.votes, player.sample.index))


def paired(ranked: Sequence[int], met: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Swiss pairs, from the top: each with the next one that is free and that it has not met. met: pairs, the lower number first, as in
    what is returned. Who finds nobody is left out."""
    free, pairs = list(ranked), []
    while free:
        one = free.pop(0)
        for place, other in enumerate(free):
            pair = (min(one, other), max(one, other))
            if pair not in met:
                pairs.append(pair)
                del free[place]
                break
    return pairs


def _agree(players: Sequence[Player], able: int) -> bool:
    """Whether they read the same, or all that can vote say the same and are more than half."""
    voting = [player for player in players if player.key is not None]
    return len(players) == 1 or (len(voting) == 1 and 2 * voting[0].votes > able)


def _ranked(fitted: Strengths) -> list[int]:
    """Places, the strongest first, of equals the one that was seeded before."""
    return sorted(range(len(fitted.logs)), key=lambda place: (-round(fitted.logs[place], _DIGITS), place))


def _rounds(params: Params, players: int) -> int:
    return (players - 1).bit_length() if params.rounds is None else params.rounds


def build(params: Params) -> Tournament:
    """The strategy of these parameters."""
    return Tournament(params)
