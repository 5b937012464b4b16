"""Who changed what, as this process tells it. A change is never kept back by a database that does not answer: its entry waits."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from gateway.store.audit import AuditEntry, AuditWanted, list_audit, new_id, row_of
from gateway.store.queries import Place
from gateway.store.writer import StoreError

if TYPE_CHECKING:
    from gateway.access.link import Session
    from gateway.store.backlog import Backlog
    from gateway.store.database import Database

log = logging.getLogger("trilemma.admin")

Source = Literal["database", "memory"]


class Trail:
    """backlog, database: where entries are kept; None: nowhere. keep: how many this process remembers."""

    def __init__(
        self, backlog: Backlog | None = None, database: Database | None = None, keep: int = 1_000, clock: Callable[[], float] = time.time
    ) -> None:
        self._backlog = backlog
        self._database = database
        self._clock = clock
        self._recent: deque[AuditEntry] = deque(maxlen=keep)

    def add(
        self,
        key_name: str,
        action: str,
        target: str,
        *,
        before_hash: str | None = None,
        after_hash: str | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Never waits. key_name: who did it; for the others see AuditEntry: names, numbers and digests, no secret and no text."""
        created = self._clock()
        entry = AuditEntry(new_id(created), created, key_name, action, target, before_hash, after_hash, detail)
        log.info("key %s: %s %s", key_name, action, target)
        self._recent.append(entry)
        if self._backlog is not None:
            self._backlog.put(lambda session: _store(session, entry))

    async def page(self, wanted: AuditWanted, after: Place | None, limit: int) -> tuple[Sequence[AuditEntry], Place | None, Source]:
        """The newest entries that are wanted, those behind `after` if it is given; where the next page begins; and who says so.

        Memory, where there is no database or it does not answer, knows only what was done through this process.
        """
        if self._backlog is not None and self._database is not None and await self._backlog.flush():
            try:
                entries, place = await self._database.read(lambda connection: list_audit(connection, after, limit, wanted))
                return entries, place, "database"
            except StoreError as error:
                log.info("the audit log cannot be read: %s", error)
        found = [each for each in reversed(self._recent) if _is_wanted(each, wanted, after)]
        place = Place(found[limit - 1].created, found[limit - 1].id) if len(found) > limit else None
        return found[:limit], place, "memory"


def _is_wanted(entry: AuditEntry, wanted: AuditWanted, after: Place | None) -> bool:
    return (
        (wanted.key_name is None or entry.key_name == wanted.key_name)
        and (wanted.action is None or entry.action == wanted.action)
        and (wanted.since is None or entry.created >= wanted.since)
        and (after is None or (entry.created, entry.id) < after)
    )


def _store(session: Session, entry: AuditEntry) -> None:
    columns = ", ".join(AuditEntry.__struct_fields__)
    places = ", ".join("?" * len(AuditEntry.__struct_fields__))
    session.run(f"INSERT INTO audit ({columns}) VALUES ({places}) ON CONFLICT DO NOTHING", *row_of(entry))  # noqa: S608 - our own names
