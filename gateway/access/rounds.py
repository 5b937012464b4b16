"""Rounds of draws: what a process needs of shared limits is drawn for all its requests that wait, in one transaction after another.

While a round is on its way, whoever comes waits for the next one. What is given back, what lapses and what was used without a draw is told
in the same transactions.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.access import ledger
from gateway.access.ledger import LAPSE_S, Refused
from gateway.access.link import Link, NoSchema
from gateway.access.share import AGAIN_S, Part, Share
from gateway.store.writer import StoreError

log = logging.getLogger("trilemma.limits")

# The database is asked whether it is back so often.
_BACK_S: Final = 1.0
# What is given back waits so long for more of it.
_GATHER_S: Final = 0.05
_LOOK_S: Final = 0.1

Answer = Sequence[Part] | Refused | None
"""What a request took, why it has to wait, or None: nobody can tell now."""


class _Ask(NamedTuple):
    """What one request needs, and what it is told."""

    needs: Sequence[tuple[Share, int]]
    answer: asyncio.Future[Answer]


class Rounds:
    """The draws of this process, one after another, each for all who wait. up: the database answers."""

    def __init__(self, link: Link, clock: Callable[[], float] = time.monotonic) -> None:
        self._link = link
        self._clock = clock
        self._holder = secrets.token_hex(8)
        self._asks: list[_Ask] = []
        self._changed: dict[str, Share] = {}
        self._living: dict[str, Share] = {}
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._forget_at = -math.inf
        self.up = False

    @property
    def trouble(self) -> str | None:
        """What does not work now."""
        return None if self.up else "limits: each process counts for itself"

    async def start(self, within_s: float) -> None:
        """Finds out whether the database answers. A schema that is not there yet is waited for so long."""
        until = self._clock() + within_s
        while not self.up:
            try:
                await self._link.run(ledger.forget)
            except StoreError as error:
                if not isinstance(error, NoSchema) or self._clock() >= until:
                    self._failed(error)
                    return
                await asyncio.sleep(_LOOK_S)
            else:
                self.up = True

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            within_s = _BACK_S if not self.up else LAPSE_S if any(not share.in_places for share in self._living.values()) else AGAIN_S
            try:
                async with asyncio.timeout(within_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            await self._round()

    async def close(self) -> None:
        """Gives back all that is left."""
        if self._timer is not None:
            self._timer.cancel()
        if self.up:
            await self._draw([], {**self._changed, **self._living})
        for ask in self._asks:
            _told(ask, None)

    def soon(self, share: Share) -> None:
        """The database should hear of this one; of a place at once, for others may look for one."""
        self._changed[share.limit.id] = share
        if share.in_places:
            self._wake.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER_S, self._gathered)

    async def ask(self, needs: Sequence[tuple[Share, int]]) -> Answer:
        """All of it or nothing, in the next round."""
        ask = _Ask(needs, asyncio.get_running_loop().create_future())
        self._asks.append(ask)
        self._wake.set()
        try:
            return await ask.answer
        except asyncio.CancelledError:
            if ask.answer.done() and not ask.answer.cancelled() and isinstance(parts := ask.answer.result(), list):
                for (share, amount), part in zip(needs, parts, strict=True):
                    share.give_back(part, amount)
            raise

    def _gathered(self) -> None:
        self._timer = None
        self._wake.set()

    async def _round(self) -> None:
        now = self._clock()
        asks, self._asks = [ask for ask in self._asks if not ask.answer.done()], []
        shares = {share.limit.id: share for ask in asks for share, _ in ask.needs}
        shares |= self._changed
        self._changed = {}
        shares |= {id_: share for id_, share in self._living.items() if not self.up or share.due(now)}
        try:
            if not self.up and not await self._is_back():
                self._changed = {**shares, **self._changed}
                for ask in asks:
                    _told(ask, None)
                return
            if shares:
                await self._draw(asks, shares)
            if self.up and now >= self._forget_at:
                self._forget_at = now + AGAIN_S
                await self._link.run(ledger.forget)
        except StoreError as error:
            self._failed(error)
        except Exception:
            log.exception("limits cannot be drawn from")
            self.up = False
            for ask in asks:
                _told(ask, None)

    async def _draw(self, asks: Sequence[_Ask], shares: Mapping[str, Share]) -> None:
        now = self._clock()
        numbers = {id_: number for number, id_ in enumerate(shares)}
        asked = {share.limit.id for ask in asks for share, _ in ask.needs}
        lines = [share.line(now, asked=id_ in asked) for id_, share in shares.items()]
        needs = [[(numbers[share.limit.id], amount) for share, amount in ask.needs] for ask in asks]
        try:
            found = await self._link.run(lambda session: ledger.draw(session, self._holder, lines, needs))
        except StoreError as error:
            for share, line in zip(shares.values(), lines, strict=True):
                share.unsaid(line)
            self._changed = {**shares, **self._changed}
            self._failed(error)
            for ask in asks:
                _told(ask, None)
            return
        for share, drawn in zip(shares.values(), found.lines, strict=True):
            share.drawn(drawn, now)
        for ask, refused in zip(asks, found.refused, strict=True):
            self._answered(ask, refused, [found.lines[numbers[share.limit.id]].second for share, _ in ask.needs])
        self._living |= shares
        self._living = {id_: share for id_, share in self._living.items() if share.lives}

    def _answered(self, ask: _Ask, refused: Refused | None, seconds: Sequence[int]) -> None:
        if refused is not None:
            _told(ask, refused)
            return
        now = self._clock()
        parts = [share.lend(amount, second, now) for (share, amount), second in zip(ask.needs, seconds, strict=True)]
        if not _told(ask, parts):  # it has left
            for (share, amount), part in zip(ask.needs, parts, strict=True):
                share.give_back(part, amount)

    async def _is_back(self) -> bool:
        """Whether it lets itself be written to: one that is locked can still be read."""
        try:
            await self._link.run(ledger.forget)
        except StoreError:
            return False
        log.warning("limits are shared again")
        self.up = True
        return True

    def _failed(self, error: StoreError) -> None:
        log.warning("limits cannot be shared now, so each process counts for itself: %s", error)
        self.up = False


def _told(ask: _Ask, answer: Answer) -> bool:
    if ask.answer.done():
        return False
    ask.answer.set_result(answer)
    return True
