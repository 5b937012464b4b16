"""What the questions of one request may use: of its budget what candidates leave, and of its caller's limits.

most = await purse.lend(prompt_bytes, most)      tokens that the reply may have, or Unanswered: it is not asked
purse.returned(most - used)                      what it did not need
purse.close()                                    the request has ended
"""

from __future__ import annotations

from typing import Final

from gateway.access.limit import Need
from gateway.access.limits import Permit
from gateway.serving.state import CHARACTERS_OF_TOKEN
from gateway.wire.errors import ApiError
from policies.decoding.strategy import Unanswered

# A reply of fewer tokens is of no use.
_SHORTEST: Final = 16


class Purse:
    """share: tokens of each candidate, which are nobody else's until it has ended; None: nothing bounds them. permit: what the request has
    of its caller's limits."""

    def __init__(self, share: int | None, permit: Permit | None) -> None:
        self._share = share
        self._permit = permit
        self._left = 0
        self._taken: list[Permit] = []

    def ended(self, tokens: int) -> None:
        """A candidate has ended, with so many."""
        if self._share is not None:
            self._left += max(0, self._share - tokens)

    async def lend(self, prompt_bytes: int, most: int) -> int:
        """Tokens of a reply, `most` or fewer. most: 0 where nothing is replied. Raises Unanswered."""
        if most and self._share is not None:
            most = min(most, self._left)
            if most < _SHORTEST:
                raise Unanswered("budget_tokens")
        self._left -= most  # before anything is waited for: questions are asked side by side
        try:
            await self._allowed(Need(-(-prompt_bytes // CHARACTERS_OF_TOKEN), most))
        except ApiError as error:
            self._left += most
            raise Unanswered(error.code) from None
        return most

    def returned(self, tokens: int) -> None:
        """A reply has come, and did not need so many."""
        self._left += max(0, tokens)

    def close(self) -> None:
        """What was used of the limits counts with the request from now on."""
        for permit in self._taken:
            permit.close(0)

    async def _allowed(self, need: Need) -> None:
        """Raises ApiError 429."""
        if self._permit is None:
            return
        beside = self._permit.beside()
        self._taken.append(beside)
        if not beside.take(need):
            await beside.drawn(need)
