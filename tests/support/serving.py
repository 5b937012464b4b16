"""`trilemma serve` as a process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gateway.engines.spec import free_port
from tests.support.asking import question
from tests.support.held import HeldBackend
from tests.support.processes import family, kill
from tests.support.raw import Wire
from tests.support.running import NO_TLS, config_for

COMMAND = Path(sys.executable).with_name("trilemma")


@dataclass
class Serving:
    """A running `trilemma serve`."""

    url: str
    file: Path
    process: Process
    log: Path

    async def end(self, within_s: float = 20.0) -> int:
        """Its exit status, once it has ended."""
        async with asyncio.timeout(within_s):
            return await self.process.wait()

    async def status(self, path: str) -> int:
        """Of a GET on a connection of its own; 0: nobody listens."""
        async with httpx.AsyncClient(verify=NO_TLS) as client:
            try:
                return (await client.get(self.url + path)).status_code
            except httpx.ConnectError:
                return 0

    async def until_status(self, path: str, status: int) -> None:
        """Waits for it."""
        async with asyncio.timeout(20):
            while await self.status(path) != status:
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.02)


@asynccontextmanager
async def serving(folder: Path, config: Mapping[str, Any], env: Mapping[str, str] = os.environ, *options: str) -> AsyncIterator[Serving]:
    """Runs it until the block ends; whatever comes of the test, nothing is left."""
    port = free_port()
    file, log = folder / "trilemma.yaml", folder / "log.txt"
    file.write_text(json.dumps({**config, "server": {**config["server"], "port": port}}))
    with log.open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, "serve", "--config", file, "--state", folder / "state", *options),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=err,
            env=env,
        )
    try:
        yield Serving(f"http://127.0.0.1:{port}", file, process, log)
    finally:
        if process.returncode is None:
            members = family(process.pid)
            process.kill()
            await process.wait()
            kill(members)


def over(url: str, **server: Any) -> dict[str, Any]:
    """A configuration for one backend."""
    return config_for({"a": {"url": url, "models": {"mock-model": "mock-model"}}}, server=server)


async def begun(connection: Wire, held: HeldBackend, count: int) -> None:
    """A stream whose first event has come."""
    connection.post(json.dumps(question(stream=True)).encode())
    await held.until_begun(count)
    status, _ = await connection.head()
    assert status == 200
    assert b'"one"' in await connection.chunk()
