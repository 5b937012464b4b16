"""Roles without engines: scripted samples and replies, and a record of what was asked and what is still open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from policies.decoding.strategy import SAMPLER, NoneLeft, Progress, Roles, Sample, Strategy, Task, Unanswered, Won, Written
from policies.values.answer import Said
from policies.values.prompt import Turn

TASK = Task((Turn("user", "What is 6 times 7?"),), seed=1)


class Asked(NamedTuple):
    """One question. nth: how many there were before it."""

    nth: int
    role: str
    prompt: str
    most: int


Reply = str | Said | Sample | None
"""None: the role fails."""


def sample(index: int, text: str, *, finish: str | None = "stop", tokens: int = 1, logprobs: Sequence[float] | None = None) -> Sample:
    """A candidate; logprobs: of its tokens."""
    content = None if logprobs is None else {"content": [{"logprob": each} for each in logprobs]}
    return Sample(index, Said(text, finish=finish), tokens, content)


def nobody(asked: Asked) -> Reply:
    """Every question fails."""
    return None


def says(reply: Reply) -> Callable[[Asked], Reply]:
    """Every question is answered so."""
    return lambda _: reply


class FakeRoles:
    """samples: in stock, of the sampler, or of each role; given in the order of their indices, whatever order they end in; who asks for
    more than there are gets what there is. replies: what a question is answered by. delays: turns of the loop until a sample ends, by
    index. scores: what scorers say, by index, and after how many turns; nothing of others. reads: characters of a message, at most. writes:
    what is written on, in order, then it fails; None: it cannot be. asked, sampled, scored, wrote: what was wanted, in order. said: what
    was written, in the end. told: sentences. open: samples and questions that are running now; most_open: at once."""

    def __init__(
        self,
        samples: Sequence[Sample] | Mapping[str, Sequence[Sample]] = (),
        replies: Callable[[Asked], Reply] = nobody,
        *,
        task: Task = TASK,
        delays: Mapping[int, int] | None = None,
        scores: Mapping[int, float | None] | None = None,
        score_delays: Mapping[int, int] | None = None,
        writes: Sequence[Written] | None = None,
    ) -> None:
        by_role = samples if isinstance(samples, Mapping) else {SAMPLER: samples}
        self._stock = {role: list(each) for role, each in by_role.items()}
        self._replies = replies
        self._task = task
        self._delays = delays or {}
        self._scores = scores or {}
        self._score_delays = score_delays or {}
        self.asked: list[Asked] = []
        self.reads = 1_000_000
        self._writes = None if writes is None else list(writes)
        self.wrote: list[tuple[str, int | None, tuple[str, ...]]] = []
        self.said: tuple[str, str, str | None] | None = None
        self.told: list[str] = []
        self.scored: list[tuple[str, int]] = []
        self.sampled: list[tuple[str, int]] = []
        self.open = 0
        self.most_open = 0

    @property
    def task(self) -> Task:
        return self._task

    async def sample(self, n: int, role: str = SAMPLER) -> AsyncGenerator[Sample, None]:
        self.sampled.append((role, n))
        stock = self._stock.get(role, [])
        mine, stock[:n] = stock[:n], []
        mine.sort(key=lambda each: (self._delays.get(each.index, each.index), each.index))
        self._begin()
        try:
            turn = 0
            for each in mine:
                for _ in range(max(1, self._delays.get(each.index, each.index) - turn)):
                    await asyncio.sleep(0)
                    turn += 1
                yield each
        finally:
            self.open -= 1

    async def ask(self, role: str, prompt: str, most: int) -> Sample:
        asked = Asked(len(self.asked), role, prompt, most)
        self.asked.append(asked)
        self._begin()
        try:
            await asyncio.sleep(0)
            reply = self._replies(asked)
        finally:
            self.open -= 1
        if reply is None:
            raise Unanswered("failed")
        if isinstance(reply, Sample):
            return reply
        return Sample(1_000 + asked.nth, reply if isinstance(reply, Said) else Said(reply, finish="stop"))

    @property
    def writes(self) -> bool:
        return self._writes is not None

    @property
    def bounds_thoughts(self) -> bool:
        return self._writes is not None

    async def write(self, text: str, most: int | None, stop: Sequence[str] = ()) -> Written:
        self.wrote.append((text, most, tuple(stop)))
        self._begin()
        try:
            await asyncio.sleep(0)
            assert self._writes is not None
            if not self._writes:
                raise Unanswered("failed")
            return self._writes.pop(0)
        finally:
            self.open -= 1

    def written(self, thought: str, said: str, finish: str | None) -> Sample:
        self.said = (thought, said, finish)
        return Sample(0, Said(said, finish=finish, thought=bool(thought)))

    def tell(self, sentence: str) -> None:
        self.told.append(sentence)

    def room(self, role: str, most: int, wished: int) -> int:  # noqa: ARG002
        return min(wished, self.reads)

    async def score(self, role: str, samples: Sequence[Sample]) -> list[float | None]:
        self.scored += [(role, each.index) for each in samples]
        self._begin()
        try:
            for _ in range(1 + max(self._score_delays.get(each.index, 0) for each in samples)):
                await asyncio.sleep(0)
        finally:
            self.open -= 1
        return [self._scores.get(each.index) for each in samples]

    def _begin(self) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)


async def events(strategy: Strategy, roles: Roles) -> list[Progress | Won]:
    """All that it says."""
    async with aclosing(strategy.run(roles)) as coming:
        return [event async for event in coming]


async def winner(strategy: Strategy, roles: Roles) -> Won:
    """Its last word; nothing is left open. Raises NoneLeft."""
    *before, last = await events(strategy, roles)
    assert isinstance(last, Won)
    assert all(isinstance(event, Progress) for event in before)
    if isinstance(roles, FakeRoles):
        assert roles.open == 0
    return last


async def left_open_by_nobody(strategy: Strategy, made: Callable[[], FakeRoles]) -> None:
    """Whoever closes the strategy at any of its events, or cancels it in any turn of the loop, leaves nothing open."""
    for number in range(len(await events(strategy, made()))):
        roles = made()
        async with aclosing(strategy.run(roles)) as coming:
            for _ in range(number + 1):
                await anext(coming)
        assert roles.open == 0, f"closed at event {number}"
    turns = 0
    while True:
        roles = made()
        task = asyncio.create_task(events(strategy, roles))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            await task
            return
        task.cancel()
        try:
            await task
        except (asyncio.CancelledError, NoneLeft):
            pass
        assert roles.open == 0, f"cancelled in turn {turns}"
        turns += 1
