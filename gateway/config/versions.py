"""The configurations that this gateway has run: each that means something new has a number.

With a database the numbers are its own, the same for all gateways that share it; without one they are this process's, and so is what is
remembered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from gateway.config.load import Loaded
from gateway.config.source import holds_secrets
from gateway.store.versions import ConfigVersion, get_version, list_versions
from gateway.store.writer import StoreError

if TYPE_CHECKING:
    from gateway.access.link import Session
    from gateway.store.backlog import Backlog
    from gateway.store.database import Database

log = logging.getLogger("trilemma.config")

_TRIES: Final = 100

Source = Literal["database", "memory"]


class Taken(msgspec.Struct):
    """A configuration that ran here. asked: when somebody asked for it, if that is how it came. text: None when it held secrets. version:
    None until the database has given it one."""

    hash: str
    created: float
    by_key: str | None
    asked: float | None
    text: str | None
    version: int | None = None

    def as_stored(self) -> ConfigVersion | None:
        """As the database has it, if it has."""
        return None if self.version is None else ConfigVersion(self.version, self.hash, self.created, self.by_key, self.text)


class Versions:
    """backlog, database: where they are kept; None: nowhere. keep: how many this process remembers."""

    def __init__(
        self, backlog: Backlog | None = None, database: Database | None = None, keep: int = 20, clock: Callable[[], float] = time.time
    ) -> None:
        self._backlog = backlog
        self._database = database
        self._keep = keep
        self._clock = clock
        self._taken: dict[str, Taken] = {}
        self._last = 0
        self._coming: tuple[str | None, str | None, float | None] = (None, None, None)
        self._running: Taken | None = None

    @property
    def running(self) -> int | None:
        """The number of the one in use; None as long as the database has not given it one."""
        return None if self._running is None else self._running.version

    def coming(self, hash_: str, by_key: str) -> None:
        """A key brings this one; `took` is told when it is in use."""
        self._coming = hash_, by_key, self._clock()

    def took(self, loaded: Loaded) -> None:
        """This one is in use now."""
        text = None if holds_secrets(loaded) else loaded.text
        taken = self._taken.pop(loaded.hash, None)
        is_new = taken is None or (taken.text is None and text is not None)
        if taken is None:
            hash_, by_key, asked = self._coming
            by_key, asked = (by_key, asked) if hash_ == loaded.hash else (None, None)
            taken = Taken(loaded.hash, self._clock(), by_key, asked, text)
        elif is_new:
            taken.text = text
        self._taken[loaded.hash] = self._running = taken
        for oldest in list(self._taken)[: -self._keep]:
            del self._taken[oldest]
        if self._backlog is None:
            if taken.version is None:
                self._last = taken.version = self._last + 1
        elif is_new:
            kept = taken
            self._backlog.put(lambda session: _kept(session, kept), lambda version: _numbered(kept, version))

    async def settle(self) -> None:
        """Waits until the database has all of them, or does not answer."""
        if self._backlog is not None:
            await self._backlog.flush()

    async def page(self, before: int | None, limit: int) -> tuple[list[ConfigVersion], Source]:
        """The newest first, without their texts, those with a lesser number than `before`; and who says so.

        Memory, where there is no database or it does not answer, knows only what ran in this process.
        """
        found = await self._read(lambda connection: list_versions(connection, before, limit))
        if found is not None:
            return found, "database"
        known = [each for each in self._remembered() if before is None or each.version < before]
        return [msgspec.structs.replace(each, text=None) for each in known[:limit]], "memory"

    async def get(self, version: int) -> ConfigVersion | None:
        """One of them, with its text."""
        found = await self._read(lambda connection: get_version(connection, version))
        return found or next((each for each in self._remembered() if each.version == version), None)

    async def _read(self, work: Callable[[Any], Any]) -> Any:
        """What the database answers; None without one, or if it does not."""
        if self._backlog is None or self._database is None or not await self._backlog.flush():
            return None
        try:
            return await self._database.read(work)
        except StoreError as error:
            log.info("the configuration's versions cannot be read: %s", error)
            return None

    def _remembered(self) -> list[ConfigVersion]:
        stored = (each.as_stored() for each in self._taken.values())
        return sorted((each for each in stored if each is not None), key=lambda each: -each.version)


def _numbered(taken: Taken, version: int) -> None:
    taken.version = version


def _kept(session: Session, taken: Taken) -> int:
    """The number of the configuration with this hash: the one it has, else the next.

    What was not known is filled in: a text without secrets, and the key that brought it when another worker was quicker to say that it ran.
    """
    for _ in range(_TRIES):
        found = session.rows("SELECT version, text, created FROM config_versions WHERE hash = ? ORDER BY version DESC LIMIT 1", taken.hash)
        if found:
            break
        # One statement sees one moment; the number may be another's by the time it is stored, and then the next one is free.
        session.run(
            "INSERT INTO config_versions (version, hash, created, by_key, text) "
            "SELECT (SELECT COALESCE(MAX(version), 0) + 1 FROM config_versions), ?, ?, ?, ? "
            "WHERE NOT EXISTS (SELECT 1 FROM config_versions WHERE hash = ?) ON CONFLICT DO NOTHING",
            *(taken.hash, taken.created, taken.by_key, taken.text, taken.hash),
        )
    else:
        raise StoreError("too many others count configurations at once")
    version, text, created = found[0]
    if text is None and taken.text is not None:
        session.run("UPDATE config_versions SET text = ? WHERE version = ?", taken.text, version)
    if taken.asked is not None and created >= taken.asked:
        session.run("UPDATE config_versions SET by_key = ? WHERE version = ?", taken.by_key, version)
    return int(version)
