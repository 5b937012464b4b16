"""Asking backends for their models: it shows that they answer, and what they serve. Nothing is generated."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from gateway.engines.base import UnexpectedAnswerError
from gateway.pool.backend import Backend
from gateway.pool.transport import Transport, TransportError
from gateway.wire.request import json_object

log = logging.getLogger("trilemma.probe")

_FIRST_S = 0.1
_SLOWEST_S = 5.0
_REFRESH_S = 30.0
_LIMIT_S = 5.0
_MAX_BYTES = 4 << 20


async def probe(transport: Transport, backend: Backend) -> bool:
    """Asks once, with the URL and key of the traffic. Whether an engine answered: a refusal of this path is an answer too."""
    headers = [(b"accept", b"application/json")]
    if backend.authorization is not None:
        headers.append((b"authorization", backend.authorization))
    try:
        async with asyncio.timeout(_LIMIT_S):
            upstream = await transport.send("GET", backend.url + "/v1/models", headers, b"", backend.timeouts.connect_s)
            try:
                body = bytearray()
                while len(body) < _MAX_BYTES and (data := await upstream.read_some()):
                    body += data
            finally:
                upstream.close()
    except (TransportError, TimeoutError):
        return False
    answer = json_object(bytes(body)) if upstream.status == 200 else None
    if answer is not None:
        try:
            backend.cards = {model.id: model for model in backend.adapter.models(answer)}
        except UnexpectedAnswerError as error:
            log.warning("backend %s: %s", backend.name, error)
    return upstream.status == 200 or upstream.status in (401, 403, 404, 405)


class Prober:
    """One task per backend: often until it answers, then at leisure. Owned by a task group; `watch` again replaces the set."""

    def __init__(self, transport: Transport, group: asyncio.TaskGroup) -> None:
        self._transport = transport
        self._group = group
        self._tasks: dict[Backend, asyncio.Task[None]] = {}

    def watch(self, backends: Iterable[Backend]) -> None:
        """Probes exactly these from now on."""
        wanted = set(backends)
        for backend in self._tasks.keys() - wanted:
            self._tasks.pop(backend).cancel()
        for backend in wanted - self._tasks.keys():
            self._tasks[backend] = self._group.create_task(self._run(backend), name=f"probe {backend.name}")

    def stop(self) -> None:
        """Ends all probing."""
        self.watch(())

    async def _run(self, backend: Backend) -> None:
        pause = _FIRST_S
        while True:
            try:
                answers = await probe(self._transport, backend)
            except Exception:  # a fault in reading one backend's answer must not end the others' probes, which share a task group
                log.exception("probing backend %s failed", backend.name)
                answers = False
            if answers:
                if not backend.answered:
                    log.info("backend %s answers", backend.name)
                backend.answered = True
                pause = _REFRESH_S
            else:
                pause = min(pause * 1.5, _SLOWEST_S)
            await asyncio.sleep(pause)
