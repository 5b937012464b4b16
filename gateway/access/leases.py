"""Limits that several processes share: each draws what it needs from the database, so that together they never use more than there is.

    permit.take(need)     of what was drawn already, at once
    permit.drawn(need)    from the database

Without the database each process counts for itself, as if it were alone, until the database is back; what was used meanwhile is said then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from gateway.access.ledger import Refused
from gateway.access.limit import Limit, Need
from gateway.access.limits import Clock, Counted, Limits, Permit, Told, refusal
from gateway.access.link import Link
from gateway.access.meters import Meter
from gateway.access.rounds import Rounds
from gateway.access.share import Share

# Who finds no place looks again after these.
_LOOK_AGAIN_S: Final = (0.01, 0.03)


class SharedLimits(Limits):
    """See Limits; counted for all processes together."""

    def __init__(self, link: Link, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self.rounds = Rounds(link, clock)

    def _permit(self, counted: Sequence[Counted], told: Sequence[Told]) -> Permit:
        return SharedPermit(self.clock, counted, told, self.rounds)

    def _meter(self, limit: Limit) -> Meter:
        share = super()._meter(limit)
        assert isinstance(share, Share)
        share.limit = limit  # a new configuration may have given it another size
        return share

    def _made(self, limit: Limit) -> Meter:
        return Share(limit, super()._made(limit), self.rounds.soon)


class SharedPermit(Permit):
    """See Permit."""

    __slots__ = ("_rounds",)

    def __init__(self, clock: Clock, counted: Sequence[Counted], told: Sequence[Told], rounds: Rounds) -> None:
        super().__init__(clock, counted, told)
        self._rounds = rounds

    def take(self, need: Need) -> bool:
        """See Permit. False: not all of it is at hand."""
        now = self._clock()
        needs = self._needs(need)
        if not self._rounds.up:
            self._alone(needs, now)
            return True
        if not all(share.has(amount, now) for share, amount in needs):
            return False
        self._taken = [(share.spend(amount, now), amount) for share, amount in needs]
        return True

    def beside(self) -> Permit:
        """See Permit."""
        return SharedPermit(self._clock, self._tokens(), (), self._rounds)

    async def drawn(self, need: Need) -> None:
        """See Permit. A place that somebody gives back just now may not have been heard of yet, so who finds none looks again."""
        needs = self._needs(need)
        for pause_s in (*_LOOK_AGAIN_S, None):
            found = await self._rounds.ask(needs)
            if found is None:
                self._alone(needs, self._clock())
                return
            if not isinstance(found, Refused):
                self._taken = [(part, amount) for part, (_, amount) in zip(found, needs, strict=True)]
                return
            share, amount = needs[found.need]
            if pause_s is None or not share.in_places:
                raise refusal(share.limit, amount, found.used, found.wait_s)
            await asyncio.sleep(pause_s)

    def _needs(self, need: Need) -> list[tuple[Share, int]]:
        found = []
        for _, _, share, limit in self._counted:
            assert isinstance(share, Share)
            found.append((share, need.under(limit)))
        return found

    def _alone(self, needs: Sequence[tuple[Share, int]], now: float) -> None:
        """As if this process were the only one."""
        wait_s, (share, amount) = max(
            ((share.own.wait_s(amount, share.limit.most, now), (share, amount)) for share, amount in needs), key=lambda each: each[0]
        )
        if wait_s > 0:
            raise refusal(share.limit, amount, share.own.used(now), wait_s)
        self._taken = [(share.add(amount, now), amount) for share, amount in needs]
