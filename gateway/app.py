"""The application: everything is built from a configuration, here, and handed on.

app = create_app(lambda: load_checked(path), state_dir)      any ASGI server, with lifespan
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

from fastapi import FastAPI

from gateway import __version__
from gateway.config.load import Loaded, load_checked
from gateway.config.watch import watch
from gateway.engines.spec import specs
from gateway.engines.supervisor import Supervisor
from gateway.http import errors, routes
from gateway.http.admin import config as admin_config
from gateway.http.lane import Lane
from gateway.http.request_ids import RequestIds
from gateway.pool.backend import Backend
from gateway.pool.http1 import Http1Transport
from gateway.pool.probe import Prober
from gateway.pool.scrape import Scraper
from gateway.pool.transport import Transport
from gateway.reload import Ports, Reloader, state_of
from gateway.serving.call import Receipt
from gateway.serving.ids import DecisionIds
from gateway.serving.life import Gateway
from gateway.store.record import recording
from gateway.store.sqlite import SqliteFile
from gateway.store.urls import database_file
from gateway.store.writer import Writer

# How long a start waits for sources of replicas that have not spoken.
_DISCOVERY_S: Final = 2.0

Read = Callable[[], Loaded]
Settled = Callable[[Receipt], None]


def unrecorded(_receipt: Receipt) -> None:
    """Receipts go nowhere."""


def create_app(read: Read, state_dir: Path, settled: Settled = unrecorded) -> App:
    """An application over the configuration that `read` gives, now and at each reload.

    state_dir: where managed engines keep models and logs. settled: sees every receipt when its request has ended.
    """
    return App(read, state_dir, settled)


def from_environment() -> App:
    """The factory for ASGI servers: TRILEMMA_CONFIG names the file, TRILEMMA_STATE the folder (default `.trilemma`)."""
    path = Path(os.environ["TRILEMMA_CONFIG"])
    return create_app(lambda: load_checked(path), Path(os.environ.get("TRILEMMA_STATE", ".trilemma")))


class App:
    """An ASGI application. `gateway` and `reloader` exist while it runs."""

    gateway: Gateway
    reloader: Reloader

    def __init__(self, read: Read, state_dir: Path, settled: Settled) -> None:
        self._read = read
        self._state_dir = state_dir
        self._settled = settled
        self._api = FastAPI(
            title="Trilemma",
            version=__version__,
            summary="An OpenAI-compatible gateway that decides quality, cost and latency per request.",
            lifespan=self._lifespan,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,  # a redirect would lead to whatever the caller wrote as Host
        )
        errors.install(self._api)
        self._api.include_router(routes.router)
        self._api.include_router(admin_config.router)
        self._lane = Lane(RequestIds(self._api))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """ASGI."""
        await self._lane(scope, receive, send)

    def drain(self) -> None:
        """No new requests; those that run go on."""
        if hasattr(self, "gateway"):
            self.gateway.draining = True

    def request_reload(self) -> None:
        """Asks for a reload soon; safe to call from a signal handler of the loop."""
        if hasattr(self, "reloader"):
            self.reloader.wanted.set()

    @property
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return self._api.openapi()

    @asynccontextmanager
    async def _lifespan(self, _api: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        loaded = self._read()
        secret = loaded.config.server.secret
        ports = Ports()
        chosen = ports.of(loaded)
        writer = _writer(loaded.config.storage.url)
        async with AsyncExitStack() as stack:
            if writer is not None:  # first, so that it ends last: what still runs settles until then
                writer.start()
                stack.push_async_callback(asyncio.to_thread, writer.close)
            transport = _transport(loaded.config.server.client)
            stack.push_async_callback(transport.close)
            self.gateway = Gateway(
                state=state_of(loaded, chosen),
                transport=transport,
                ids=DecisionIds(secret.get_secret_value().encode()) if secret is not None else DecisionIds(),
                settled=self._settled if writer is None else recording(writer.put, self._settled),
            )
            supervisor = await stack.enter_async_context(Supervisor(self._state_dir))
            await supervisor.apply(specs(loaded.config, chosen))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            prober = Prober(transport, group)
            stack.callback(prober.stop)
            scraper = Scraper(transport, group)
            stack.callback(scraper.stop)

            def watched(backends: Iterable[Backend]) -> None:
                known = tuple(backends)
                prober.watch(known)
                scraper.watch(known)

            watched(self.gateway.state.backends.values())
            self.reloader = Reloader(self._read, loaded, self.gateway, ports, watched, supervisor, group)
            stack.callback(self.reloader.stop)
            await self.reloader.discover(_DISCOVERY_S)
            reloads = group.create_task(self.reloader.run(), name="reloads")
            stack.callback(reloads.cancel)
            if loaded.config.server.watch:
                watcher = group.create_task(
                    watch(self.reloader.files, self.reloader.reload, logger=logging.getLogger("trilemma.config")),
                    name="watch",
                )
                stack.callback(watcher.cancel)
            yield {"gateway": self.gateway, "reloader": self.reloader, "writer": writer}


def _writer(url: str) -> Writer | None:
    file = database_file(url)
    return None if file is None else Writer(SqliteFile(file))


def _transport(client: Literal["http1", "aiohttp"]) -> Transport:
    if client == "http1":
        return Http1Transport()
    from gateway.pool.aiohttp_transport import AiohttpTransport  # an extra

    return AiohttpTransport()
