"""Which worker runs, or has run, the request with an idempotency key, so that no other runs it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from gateway.workers.messages import Claim, Kept

Worker = TypeVar("Worker", bound=Hashable)

# As many as four workers keep answers of. What is forgotten too early is at worst run again.
_MOST: Final = 16_384


class _Grant(Generic[Worker]):
    """It is for this worker to run. One that runs a request for the second time has a second one."""

    __slots__ = ("owner",)

    def __init__(self, owner: Worker) -> None:
        self.owner = owner


class Claims(Generic[Worker]):
    """ask: what a worker has kept of a request; it waits for one that runs. None: nothing, or it is gone."""

    def __init__(self, ask: Callable[[Worker, Claim], Awaitable[Kept | None]], most: int = _MOST) -> None:
        self._ask = ask
        self._most = most
        self._grants: OrderedDict[tuple[str, bytes], _Grant[Worker]] = OrderedDict()

    def __len__(self) -> int:
        """Requests that are known."""
        return len(self._grants)

    async def claim(self, worker: Worker, claim: Claim) -> Kept | None:
        """The answer that another worker has; None: it is for this one to run, and whoever asks later is told to look here."""
        slot = (claim.caller, claim.key)
        while (grant := self._grants.get(slot)) is not None and grant.owner != worker:
            kept = await self._ask(grant.owner, claim)
            if kept is not None:
                return kept
            if self._grants.get(slot) is grant:  # else somebody was quicker
                break
        self._grants[slot] = _Grant(worker)
        self._grants.move_to_end(slot)
        while len(self._grants) > self._most:
            self._grants.popitem(last=False)
        return None

    def leave(self, worker: Worker) -> None:
        """It has ended, and its answers with it."""
        for slot in [slot for slot, grant in self._grants.items() if grant.owner == worker]:
            del self._grants[slot]
