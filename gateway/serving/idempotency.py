"""`Idempotency-Key`: a caller that repeats a request, not knowing whether it was served, gets the first answer again.

Kept per caller, in this process's memory, for whole answers below status 500; a stream is not kept, so repeating one runs it again. The
same key with another request is refused. Bounded by entries, bytes and age; the oldest goes first. Other processes that serve the same
callers are asked before a request runs, where there are any.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gateway.serving.call import Answer
from gateway.wire.errors import ApiError

MAX_KEY = 255

Claiming = Callable[[str, bytes, bytes], Awaitable[Answer | None]]
"""(caller, key, digest of the request) -> the answer that another process has for it; None: it is this one's to run. Raises ApiError."""


async def unshared(_caller: str, _key: bytes, _digest: bytes) -> Answer | None:
    """There is no other process."""
    return None


@dataclass(slots=True)
class _Entry:
    digest: bytes
    expires: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Answer | None = None


class Idempotency:
    """Answers by (caller, key). ttl_s: seconds an answer is kept. claim: asks the other processes."""

    def __init__(self, *, entries: int = 4_096, max_bytes: int = 64 << 20, ttl_s: float = 600.0, claim: Claiming = unshared) -> None:
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        self._max_entries = entries
        self._max_bytes = max_bytes
        self._ttl_s = ttl_s
        self._bytes = 0
        self._claim = claim

    def __len__(self) -> int:
        """Answers kept and requests that run."""
        return len(self._entries)

    async def once(self, caller: str, key: bytes, request: tuple[str, bytes], run: Callable[[], Awaitable[Answer]]) -> Answer:
        """The kept answer, or what `run` gives. request: method and target, and body, which must be the same each time.

        A repeat that comes while the first still runs waits for it; if the first fails or is cancelled, it runs itself. Raises ApiError.
        """
        if not 0 < len(key) <= MAX_KEY:
            raise ApiError(400, "caller_invalid_value", f"`Idempotency-Key` must hold 1 to {MAX_KEY} characters.")
        digest = hashlib.sha256(request[0].encode() + b"\0" + request[1]).digest()
        slot = (caller, key)
        kept = await self._ended(slot, digest)
        if kept is None:
            ttl = asyncio.get_running_loop().time() + self._ttl_s
            kept, ran = await self._first(slot, _Entry(digest, ttl), run)
            if ran:
                return kept
        return Answer(kept.status, [*kept.headers, (b"x-trilemma-replayed", b"true")], kept.body)

    async def kept(self, caller: str, key: bytes, digest: bytes) -> Answer | None:
        """For another process's `claim`: the answer that this one has, waited for while it runs; None: it has none. Raises ApiError."""
        return await self._ended((caller, key), digest)

    async def _ended(self, slot: tuple[str, bytes], digest: bytes) -> Answer | None:
        now = asyncio.get_running_loop().time()
        while (entry := self._entries.get(slot)) is not None and entry.expires > now:
            if entry.digest != digest:
                raise conflict()
            if entry.ended.is_set():
                return entry.answer
            await entry.ended.wait()
        return None

    async def _first(self, slot: tuple[str, bytes], entry: _Entry, run: Callable[[], Awaitable[Answer]]) -> tuple[Answer, bool]:
        """The answer, and whether it was `run` that gave it."""
        self._forget(slot)
        self._entries[slot] = entry
        try:
            answer = await self._claim(*slot, entry.digest)
            ran = answer is None
            if answer is None:
                answer = await run()
            kept = answer.stream is None and answer.status < 500 and answer.status not in (408, 429)
            if kept and self._entries.get(slot) is entry:  # it may have run for so long that another took its place
                # A copy: the lane adds to an answer's headers as it sends it.
                entry.answer = Answer(answer.status, list(answer.headers), answer.body)
                self._bytes += len(answer.body)
                self._entries.move_to_end(slot)  # what still runs stays in front, so the oldest answer is the first behind it
            return answer, ran
        finally:
            entry.ended.set()
            if entry.answer is None and self._entries.get(slot) is entry:
                self._forget(slot)
            self._trim()

    def _trim(self) -> None:
        now = asyncio.get_running_loop().time()
        while (slot := next((slot for slot, entry in self._entries.items() if entry.answer is not None), None)) is not None:
            if self._entries[slot].expires > now and len(self._entries) <= self._max_entries and self._bytes <= self._max_bytes:
                return
            self._forget(slot)

    def _forget(self, slot: tuple[str, bytes]) -> None:
        entry = self._entries.pop(slot, None)
        if entry is not None and entry.answer is not None:
            self._bytes -= len(entry.answer.body)


def conflict() -> ApiError:
    """What somebody is told who uses a key for two requests."""
    return ApiError(409, "caller_idempotency_conflict", "This Idempotency-Key was used with another request.")
