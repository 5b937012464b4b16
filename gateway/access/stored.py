"""Keys of the database, in every process: looked for each second, off the loop, and taken up when any of them changed.

When the database cannot be asked, those that are known go on for a stated time, then they stop until it is back.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gateway.access.link import Link, NoSchema, Session
from gateway.store.keys import StoredKey
from gateway.store.writer import StoreError

log = logging.getLogger("trilemma.keys")

_LOOK_S: Final = 1.0
_COLUMNS: Final = StoredKey.__struct_fields__
_JSON: Final = frozenset(("scopes", "models", "tags"))


class StoredKeys:
    """take_up: gets the keys when they changed. grace_s: how long they go on without the database. clock: seconds, never back."""

    def __init__(
        self, link: Link, take_up: Callable[[Sequence[StoredKey]], None], grace_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._link = link
        self._take_up = take_up
        self._grace_s = grace_s
        self._clock = clock
        self._version: int | None = None  # None: nothing is in use
        self._good_until = -math.inf
        self._reason: str | None = None
        self._looking = asyncio.Lock()

    @property
    def trouble(self) -> str | None:
        """What does not work now."""
        if self._reason is None:
            return None
        return "keys: those of the database are out of use" if self._version is None else "keys: those of the database may have changed"

    async def run(self) -> None:
        """Looks for changes until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                await self.look()
            except Exception:
                log.exception("the database's keys could not be taken up")

    async def look(self) -> None:
        """Takes up what changed since it was last looked."""
        async with self._looking:
            try:
                found = await self._link.read(functools.partial(_changed, since=self._version))
            except StoreError as error:
                self._failed(error)
                return
            self._good_until = self._clock() + self._grace_s
            if self._reason is not None:
                log.warning("the database's keys can be read again")
                self._reason = None
            if found is not None:
                version, keys = found
                self._take_up(keys)
                self._version = version
                log.info("the database has %d keys", len(keys))

    def _failed(self, error: StoreError) -> None:
        if self._version is None and isinstance(error, NoSchema):
            return  # a new database has no keys either
        if self._reason is None:
            log.warning("the database's keys cannot be read: %s", error)
        self._reason = str(error)
        if self._version is not None and self._clock() >= self._good_until:
            log.error("the database's keys are out of use after %g s without it", self._grace_s)
            self._version = None
            self._take_up(())


def _changed(session: Session, since: int | None) -> tuple[int, Sequence[StoredKey]] | None:
    """Their version and all that are not revoked; None: nothing changed."""
    ((version,),) = session.rows("SELECT COALESCE(MAX(changed), 0) FROM keys")
    if version == since:
        return None
    rows = session.rows(f"SELECT {', '.join(_COLUMNS)} FROM keys WHERE revoked IS NULL")  # noqa: S608 - names of our own
    return int(version), [key for row in rows if (key := _key(row)) is not None]


def _key(row: Sequence[object]) -> StoredKey | None:
    values = dict(zip(_COLUMNS, row, strict=True))
    try:
        for name in _JSON:
            values[name] = msgspec.json.decode(str(values[name]))
        bytes.fromhex(str(values["sha256"]))
        return msgspec.convert(values, StoredKey)
    except (msgspec.MsgspecError, ValueError):
        log.exception("a key of the database cannot be read, and is left out: %s", values["id"])
        return None
