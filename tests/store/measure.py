"""How long a page takes in a store of many decisions, and how many rows are stored a second.

    python -m tests.store.measure --rows 1000000                      a SQLite file, in a temporary folder
    python -m tests.store.measure --rows 1000000 --postgres           a PostgreSQL of the tests' own
    python -m tests.store.measure --keep d.db                         kept for the next time

Prints milliseconds: the newest 50 by each filter, the page in the middle, one decision by its id. No test: times are a machine's.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import text

from gateway.serving.ids import DecisionIds
from gateway.store import queries
from gateway.store.engine import Begin, engine
from gateway.store.migrate import migrate
from gateway.store.queries import Place, Wanted
from gateway.store.urls import Location, PostgresUrl, SqliteUrl
from gateway.store.writer import Sink
from tests.store.making import decision, item
from tests.support.postgres import running_server
from tests.support.stored import PostgresPlace, SqlitePlace

BEGAN = 1_700_000_000.0
BATCH = 1_000


def main() -> None:
    """Fills what is not full yet, then asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with place(options.postgres, options.keep) as (location, sink):
        migrate(location)
        sink.ready()
        made = engine(location, busy_s=10)
        with made.connect() as connection:
            held = int(connection.execute(text("SELECT count(*) FROM decisions")).scalar_one())
        fill(sink, held, options.rows)
        with made.connect().execution_options(begin=Begin(writes=False)) as connection:
            ask(connection)
        made.dispose()
        sink.close()


@contextlib.contextmanager
def place(postgres: bool, keep: Path | None) -> Iterator[tuple[Location, Sink]]:
    """A database."""
    if postgres:
        with running_server() as server:
            url = server.url(server.create())
            yield PostgresUrl(url), PostgresPlace(url).sink()
        return
    with tempfile.TemporaryDirectory() as folder:
        file = keep or Path(folder, "d.db")
        yield SqliteUrl(file), SqlitePlace(file).sink()


def fill(sink: Sink, start: int, count: int) -> None:
    """Decisions of a hundred tenants and some rare ones, a call each."""
    random = Random(start)
    now = [BEGAN]
    ids = DecisionIds(b"", lambda: int(now[0] * 1e9))
    began, cpu = time.perf_counter(), time.thread_time()
    for first in range(start, count, BATCH):
        items = []
        for number in range(first, min(first + BATCH, count)):
            now[0] = BEGAN + number / 10
            id_ = ids.mint("")
            rare = number % 20_011 == 0
            items.append(
                decision(
                    id_,
                    request_id=f"req_{id_[:32]}",
                    created=now[0],
                    tenant="rare" if rare else f"tenant-{random.randrange(100)}",
                    key_name="rare" if rare else f"key-{random.randrange(300)}",
                    served_model="rare" if rare else f"model-{random.randrange(5)}",
                    policy="rare" if rare else ("none", "split")[random.randrange(2)],
                    outcome="backend_error" if rare else "ok",
                    session=f"{random.randrange(count // 5):032x}" if number % 2 else None,
                    config_hash="c" * 64,
                    tags=None,
                )
            )
            items.append(item("calls", decision_id=id_, n=0))
        sink.store(items)
    if start < count:
        rows = 2 * (count - start)
        wall, used = time.perf_counter() - began, time.thread_time() - cpu
        print(f"stored {rows} rows at {rows / wall:.0f}/s, {used / rows * 1e6:.1f} us of CPU each (making them included)")


def ask(connection: Any) -> None:
    """Times each kind of question: the best and the worst of five."""
    newest = queries.page(connection, Wanted(), limit=1).rows[0]
    oldest = BEGAN
    middle = (oldest + newest["created"]) / 2
    session = next(row["session"] for row in queries.page(connection, Wanted(), limit=50).rows if row["session"])
    for name, wanted, after in (
        ("all", Wanted(), None),
        ("all, in the middle", Wanted(), Place(middle, "")),
        ("a tenant of 100", Wanted(tenant="tenant-7"), None),
        ("a tenant of 100, in the middle", Wanted(tenant="tenant-7"), Place(middle, "")),
        ("a rare tenant", Wanted(tenant="rare"), None),
        ("no such tenant", Wanted(tenant="nobody"), None),
        ("a rare key", Wanted(key_name="rare"), None),
        ("a model", Wanted(model="model-1"), None),
        ("a rare model", Wanted(model="rare"), None),
        ("a policy", Wanted(policy="split"), None),
        ("a rare policy", Wanted(policy="rare"), None),
        ("ok", Wanted(outcome="ok"), None),
        ("errors", Wanted(outcome="backend_error"), None),
        ("a session", Wanted(session=session), None),
        ("a time", Wanted(since=middle, until=middle + 60), None),
        ("a time with nothing in it", Wanted(since=1.0, until=2.0), None),
        ("errors of a tenant with none", Wanted(tenant="tenant-7", outcome="backend_error"), None),
        ("a tenant and a model", Wanted(tenant="tenant-7", model="model-1"), None),
        ("a rare tenant that is ok", Wanted(tenant="rare", outcome="ok"), None),
        ("a rare tenant and a common policy", Wanted(tenant="rare", policy="split"), None),
        ("a tenant's old time", Wanted(tenant="tenant-7", since=oldest, until=oldest + 3600), None),
    ):
        tell(name, lambda wanted=wanted, after=after: len(queries.page(connection, wanted, after).rows))
    tell("count of all, up to 10,000", lambda: queries.count(connection, Wanted()))
    tell("count of a tenant", lambda: queries.count(connection, Wanted(tenant="tenant-7")))
    tell("one by its id", lambda: queries.decision(connection, newest["id"]) is not None)


def tell(name: str, work: Callable[[], Any]) -> None:
    """A line."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        found = work()
        times.append((time.perf_counter() - began) * 1e3)
    print(f"{name:40} {min(times):8.2f} .. {max(times):8.2f} ms   ({found})")


if __name__ == "__main__":
    main()
