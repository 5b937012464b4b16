"""A gateway on a real socket, in the test's own event loop, so that its counts and tasks can be looked at."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
from starlette.types import Receive, Scope, Send

from gateway.app import App, create_app
from gateway.config.load import Loaded, load_checked
from gateway.config.schema import Server as Settings
from gateway.http.request_ids import RequestIds
from gateway.http.server import Server
from gateway.http.sockets import listening
from gateway.serving.call import Receipt
from gateway.serving.life import Gateway

Lane = Literal["hot", "asgi", "fastapi"]
KEY = "sk-test"
NO_TLS = False
"""For httpx's `verify`: it would read the machine's certificates for each client, 25 ms that nothing here needs."""
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()


@dataclass
class Running:
    """url: without `/v1`. settled: the receipt of every ended request, in order. config: may be replaced; a reload reads it.
    file: the configuration's."""

    url: str
    app: App
    config: dict[str, Any]
    settled: list[Receipt]
    file: Path
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    server: Server = field(init=False)

    @property
    def gateway(self) -> Gateway:
        return self.app.gateway

    def in_flight(self) -> int:
        """Requests that any backend still works on, as the gateway counts."""
        return sum(backend.in_flight for backend in self.gateway.state.backends.values())

    def client(self, key: str = KEY, **settings: Any) -> httpx.AsyncClient:
        """An HTTP client with the key."""
        headers = {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, verify=NO_TLS, **settings)

    async def until_settled(self, count: int, within_s: float = 10.0) -> None:
        """Waits until that many requests have ended."""
        async with asyncio.timeout(within_s):
            while len(self.settled) < count:
                self.changed.clear()
                await self.changed.wait()


def config_for(backends: Mapping[str, Mapping[str, Any]], **sections: Any) -> dict[str, Any]:
    """A configuration over given backends, with the test's key; sections replace or add."""
    key = {"name": "test", "sha256": DIGEST, "scopes": ["inference", "admin"]}
    server = {"port": 0, "grace_s": 1} | sections.pop("server", {})
    return {"version": 1, "server": server, "backends": dict(backends), "keys": [key]} | sections


class _Prompt(Server):
    """Begins to end when `ending` is set, too; uvicorn looks every tenth of a second whether it should."""

    ending: asyncio.Event

    async def main_loop(self) -> None:
        """See uvicorn."""
        looking, told = asyncio.create_task(super().main_loop()), asyncio.create_task(self.ending.wait())
        await asyncio.wait((looking, told), return_when=asyncio.FIRST_COMPLETED)
        for task in (looking, told):
            task.cancel()
        await asyncio.gather(looking, told, return_exceptions=True)


class _Routes:
    """FastAPI's routes first; the paths that only the lane in front of them serves go there."""

    def __init__(self, app: App) -> None:
        self._lane = app.in_front
        self._routes = RequestIds(app.api)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        routed = scope["type"] == "http" and scope["path"] in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
        await (self._routes if routed else self._lane)(scope, receive, send)


@asynccontextmanager
async def running(config: dict[str, Any], state_dir: Path, lane: Lane = "hot") -> AsyncIterator[Running]:
    """Serves `config` until the block ends. lane: the way that plain requests go: hot, through ASGI, or as FastAPI's routes."""
    settled: list[Receipt] = []
    changed = asyncio.Event()
    run: Running

    def settle(receipt: Receipt) -> None:
        settled.append(receipt)
        changed.set()

    written = ""

    def read() -> Loaded:
        nonlocal written
        if (text := json.dumps(run.config)) != written:  # else whatever has been written to the file stays there
            run.file.write_text(text)
            written = text
        return load_checked(run.file)

    app = create_app(read, state_dir, settle)
    if lane == "fastapi":
        app.in_front = _Routes(app)
    run = Running("", app, config, settled, state_dir.with_suffix(".yaml"), changed)
    settings = Settings.model_validate(config["server"])
    with listening(settings) as sock:
        host, port = sock.getsockname()[:2]
        run.url = f"http://{host}:{port}"
        server = run.server = _Prompt(app, settings, app.drain, signals=False, hot=lane == "hot")
        server.ending = asyncio.Event()
        task = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            async with asyncio.timeout(30):
                while not server.started:
                    if task.done():
                        task.result()
                        raise AssertionError("the gateway ended while starting; its log says why")
                    await asyncio.sleep(0.005)
            yield run
        finally:
            server.should_exit = True
            server.ending.set()
            await task
