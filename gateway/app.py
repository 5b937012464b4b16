"""The application: everything is built from a configuration, here, and handed on.

app = create_app(lambda: load_checked(path), state_dir)      any ASGI server, with lifespan
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

from fastapi import FastAPI
from starlette.types import ASGIApp

from gateway import __version__
from gateway.access.access import Access
from gateway.administration import Administration
from gateway.config.load import Loaded, load_checked
from gateway.config.replacer import Replacer
from gateway.config.schema import Config, Storage
from gateway.config.watch import watch
from gateway.engines.ports import Ports
from gateway.engines.spec import specs
from gateway.engines.supervisor import Supervisor
from gateway.http import decisions, docs, errors, metrics, routes
from gateway.http.admin import audit as admin_audit
from gateway.http.admin import backends as admin_backends
from gateway.http.admin import config as admin_config
from gateway.http.admin import decisions as admin_decisions
from gateway.http.admin import keys as admin_keys
from gateway.http.admin import policies as admin_policies
from gateway.http.admin import policy_changes as admin_policy_changes
from gateway.http.admin import policy_worth as admin_policy_worth
from gateway.http.admin import versions as admin_versions
from gateway.http.lane import Lane
from gateway.http.request_ids import RequestIds
from gateway.learning.calibrating import Calibrating
from gateway.learning.evaluating import Evaluator
from gateway.learning.examining import Examining
from gateway.learning.learner import Learner
from gateway.pool.backend import Backend
from gateway.pool.http1 import Http1Transport
from gateway.pool.probe import Prober
from gateway.pool.scrape import Scraper
from gateway.pool.transport import Transport
from gateway.reload import Engines, Reloader, state_of
from gateway.serving.call import Receipt
from gateway.serving.choice import Snapshot
from gateway.serving.deciding import Deciding
from gateway.serving.feedback import FeedbackBox
from gateway.serving.hearing import Hearing
from gateway.serving.idempotency import Idempotency
from gateway.serving.ids import DecisionIds
from gateway.serving.life import Gateway
from gateway.store.database import Database
from gateway.store.joining import Orphans
from gateway.store.keys import StoredKey
from gateway.store.record import pseudonyms, recording
from gateway.store.retention import Retention
from gateway.store.sqlite import SqliteFile
from gateway.store.urls import PostgresUrl, located
from gateway.store.writer import Sink, Writer
from gateway.telemetry.gauges import Sources
from gateway.telemetry.otel import tracing
from gateway.telemetry.snapshots import SnapshotFolder
from gateway.telemetry.telemetry import Telemetry
from gateway.workers.crew import Alone, Crew, Shared

# How long a start waits for sources of replicas that have not spoken.
_DISCOVERY_S: Final = 2.0

# How many may wait for the database; each is answered in a millisecond or so.
_QUESTIONS: Final = 1_000

Read = Callable[[], Loaded]
Settled = Callable[[Receipt], None]


def unrecorded(_receipt: Receipt) -> None:
    """Receipts go nowhere."""


def create_app(
    read: Read,
    state_dir: Path,
    settled: Settled = unrecorded,
    snapshots: SnapshotFolder | None = None,
    shared: Shared | None = None,
) -> App:
    """An application over the configuration that `read` gives, now and at each reload.

    state_dir: where managed engines keep models and logs. settled: sees every receipt when its request has ended. snapshots: where several
    workers leave their numbers for each other; shared: what else they have in common.
    """
    return App(read, state_dir, settled, snapshots, shared)


def from_environment() -> App:
    """The factory for ASGI servers: TRILEMMA_CONFIG names the file, TRILEMMA_STATE the folder (default `.trilemma`)."""
    path = Path(os.environ["TRILEMMA_CONFIG"])
    return create_app(lambda: load_checked(path), Path(os.environ.get("TRILEMMA_STATE", ".trilemma")))


class App:
    """An ASGI application. `gateway`, `reloader`, `telemetry` and `learner` exist while it runs.

    api: FastAPI's part of it. in_front: what requests come to. clients: set by whoever serves it, how many connections there are.
    """

    gateway: Gateway
    reloader: Reloader
    telemetry: Telemetry
    learner: Learner | None = None
    examining: Examining | None = None
    clients: Callable[[], int] | None = None

    def __init__(
        self, read: Read, state_dir: Path, settled: Settled, snapshots: SnapshotFolder | None = None, shared: Shared | None = None
    ) -> None:
        self._read = read
        self._state_dir = state_dir
        self._settled = settled
        self._snapshots = snapshots
        self._shared = shared
        self.api = FastAPI(
            title="Trilemma",
            version=__version__,
            summary="An OpenAI-compatible gateway that decides quality, cost and latency per request.",
            lifespan=self._lifespan,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,  # a redirect would lead to whatever the caller wrote as Host
        )
        routers = (
            routes.router,
            decisions.router,
            metrics.router,
            docs.router,
            admin_config.router,
            admin_versions.router,
            admin_backends.router,
            admin_audit.router,
            admin_keys.router,
            admin_decisions.router,
            admin_policies.router,
            admin_policy_changes.router,
            admin_policy_worth.router,
        )
        errors.install(self.api, routers)
        for router in routers:
            self.api.include_router(router)
        self.in_front: ASGIApp = Lane(RequestIds(self.api))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        await self.in_front(scope, receive, send)

    def drain(self) -> None:
        """No new requests; those that run go on."""
        if hasattr(self, "gateway"):
            self.gateway.draining = True

    def request_reload(self, then: Callable[[], None] = lambda: None) -> None:
        """Asks for a reload soon; safe to call from a signal handler of the loop. then: is called when it has ended, well or not."""
        if hasattr(self, "reloader"):
            self.reloader.request(then)

    @property
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return self.api.openapi()

    @asynccontextmanager
    async def _lifespan(self, _api: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        loaded = self._read()
        secret = loaded.config.server.secret
        ports = Ports()
        chosen = ports.of(loaded)
        writer = _writer(loaded.config.storage)
        database = _database(loaded.config.storage)
        self.telemetry = Telemetry(tracing(os.environ), self._snapshots)
        settled = _both(self.telemetry.settled, self._settled)
        feedback = None if writer is None else FeedbackBox(writer.put, self.telemetry.heard)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.telemetry.running())
            if writer is not None:  # before the rest, so that it ends after it: what still runs settles until then
                writer.start()
                stack.push_async_callback(asyncio.to_thread, writer.close)
            if database is not None:
                stack.push_async_callback(database.close)
            administration = Administration(located(loaded.config.storage.url), database)
            await stack.enter_async_context(administration.running())
            transport = _transport(loaded.config.server.client)
            stack.push_async_callback(transport.close)
            access = self._access(loaded.config)
            keyed_by = secret.get_secret_value().encode() if secret is not None else None
            pseudonym = pseudonyms(keyed_by)
            if writer is not None and feedback is not None:
                self.examining = Examining(writer.put, transport, lambda: self.gateway.state, self.telemetry.worked)
                settled = recording(writer.put, _both(_both(feedback.ended, self.examining.ended), settled), pseudonym)
            self.gateway = Gateway(
                state=state_of(loaded, chosen),
                transport=transport,
                ids=DecisionIds(keyed_by),
                settled=settled,
                idempotency=Idempotency() if self._shared is None else Idempotency(claim=self._shared.claim),
                limits=access.limits,
                onward=self.telemetry.onward,
                hearing=Hearing(keyed_by),
                deciding=Deciding(pseudonym=pseudonym),
            )
            engines: Engines
            if self._shared is None:
                engines = await stack.enter_async_context(Supervisor(self._state_dir))
            else:
                engines = self._shared.engines
            await engines.apply(specs(loaded.config, chosen))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            prober = Prober(transport, group)
            stack.callback(prober.stop)
            scraper = Scraper(transport, group)
            stack.callback(scraper.stop)

            self.learner = self._learner(loaded.config)
            if self.learner is not None:
                stack.push_async_callback(self.learner.close)

            def watched(backends: Iterable[Backend]) -> None:
                known = tuple(backends)
                prober.watch(known)
                scraper.watch(known)
                self.telemetry.follow(self.gateway.state)
                if self.learner is not None:
                    self.learner.follow(self.gateway.state)

            watched(self.gateway.state.backends.values())
            self.reloader = Reloader(self._read, loaded, self.gateway, ports, watched, engines, group, administration.versions.took)
            administration.versions.took(loaded)
            stack.callback(self.reloader.stop)
            self.telemetry.look_at(self._sources(writer, transport))
            await stack.enter_async_context(access.running(self._take_up_keys))
            await self.reloader.discover(_DISCOVERY_S)
            if self.learner is not None:
                calibrating = Calibrating(self.learner, lambda: self.gateway.state.config.learning)
                for name, work in (("learning", self.learner.run()), ("calibrating", calibrating.run())):
                    stack.callback(group.create_task(work, name=name).cancel)
            if self.examining is not None:
                stack.callback(group.create_task(self.examining.run(), name="examining").cancel)
            reloads = group.create_task(self.reloader.run(), name="reloads")
            stack.callback(reloads.cancel)
            if loaded.config.server.watch:
                watcher = group.create_task(
                    watch(self.reloader.files, self.reloader.reload, logger=logging.getLogger("trilemma.config")),
                    name="watch",
                )
                stack.callback(watcher.cancel)
            join = Alone if self._shared is None else self._shared.join
            crew: Crew = join(self.gateway, self.reloader)
            yield {
                "gateway": self.gateway,
                "reloader": self.reloader,
                "crew": crew,
                "writer": writer,
                "database": database,
                "feedback": feedback,
                "pseudonym": pseudonym,
                "access": access,
                "versions": administration.versions,
                "trail": administration.trail,
                "replacer": Replacer(lambda: self.reloader.loaded, self.reloader.problems, crew.reload, administration.versions.coming),
                "telemetry": self.telemetry,
                "learner": self.learner,
                "evaluator": Evaluator(lambda: {} if self.learner is None else self.learner.calibrations),
            }

    def _access(self, config: Config) -> Access:
        location = located(config.storage.url)
        if location is None and self._shared is not None:
            location = self._shared.location
        several = isinstance(location, PostgresUrl) or self._shared is not None or config.server.workers > 1
        return Access(location, shared=several, grace_s=config.storage.keys_grace_s)

    def _learner(self, config: Config) -> Learner | None:
        location = located(config.storage.url)
        return None if location is None else Learner(location, self._take_up_snapshots, every_s=config.learning.every_s)

    def _take_up_snapshots(self, snapshots: Mapping[str, Snapshot]) -> None:
        self.gateway.deciding.snapshots = snapshots

    def _take_up_keys(self, keys: Sequence[StoredKey]) -> None:
        self.gateway.state = self.gateway.state.with_stored(keys)

    def _sources(self, writer: Writer | None, transport: Transport) -> Sources:
        """What gauges tell of."""
        return Sources(
            state=lambda: self.gateway.state,
            reload_failures=lambda: self.reloader.failures,
            rows=writer,
            clients=self.clients,
            backends=(lambda: transport.connections) if isinstance(transport, Http1Transport) else None,
            learner=self.learner,
        )


def _both(first: Settled, second: Settled) -> Settled:
    """Tells both, in order."""
    if second is unrecorded:
        return first

    def settle(receipt: Receipt) -> None:
        first(receipt)
        second(receipt)

    return settle


def _writer(storage: Storage) -> Writer | None:
    location = located(storage.url)
    if location is None:
        return None
    sink: Sink
    if isinstance(location, PostgresUrl):
        from gateway.store.postgres import PostgresDatabase  # an extra

        sink = PostgresDatabase(location)
    else:
        sink = SqliteFile(location.file)
    keep_days = {"contents": storage.contents.keep_days}
    if storage.keep_days is not None:
        keep_days["decisions"] = storage.keep_days
    return Writer(sink, Retention(keep_days), Orphans())


def _database(storage: Storage) -> Database | None:
    location = located(storage.url)
    return None if location is None else Database(location, waiting=_QUESTIONS)


def _transport(client: Literal["http1", "aiohttp"]) -> Transport:
    if client == "http1":
        return Http1Transport()
    from gateway.pool.aiohttp_transport import AiohttpTransport  # an extra

    return AiohttpTransport()
