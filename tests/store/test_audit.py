from __future__ import annotations

from gateway.store import audit
from gateway.store.audit import AuditEntry
from gateway.store.database import Database
from gateway.store.queries import Place


async def test_entries_come_back_as_they_were(asked: Database) -> None:
    assert await asked.read(audit.list_audit) == ([], None)
    plain = await asked.run(lambda connection: audit.add_audit(connection, 1.5, "admin", "key.revoke", "ci"))
    full = await asked.run(
        lambda connection: audit.add_audit(
            connection, 2.5, "admin", "config.put", "config", before_hash="b", after_hash="a", detail={"version": 3, "names": ["é"]}
        )
    )
    assert (plain.created, plain.key_name, plain.action, plain.target, plain.detail) == (1.5, "admin", "key.revoke", "ci", None)
    assert full == AuditEntry(full.id, 2.5, "admin", "config.put", "config", "b", "a", {"version": 3, "names": ["é"]})
    assert await asked.read(audit.list_audit) == ([full, plain], None)


async def test_page_by_page(asked: Database) -> None:
    """The newest first; of what was done at one moment, each once."""
    added = [await asked.run(lambda connection, n=n: audit.add_audit(connection, float(n // 3), "k", "a", f"t{n}")) for n in range(10)]
    found: list[AuditEntry] = []
    after: Place | None = None
    for size in (4, 4, 2):
        page, after = await asked.read(lambda connection, after=after: audit.list_audit(connection, after, limit=4))
        assert len(page) == size
        found += page
    assert after is None
    assert found == sorted(added, key=lambda entry: (entry.created, entry.id), reverse=True)


async def test_an_entry_is_there_only_with_what_it_tells_of(asked: Database) -> None:
    def fails(connection: object) -> None:
        audit.add_audit(connection, 1.0, "k", "a", "t")  # type: ignore[arg-type]
        raise LookupError

    try:
        await asked.run(fails)
    except LookupError:
        pass
    assert await asked.read(audit.list_audit) == ([], None)
