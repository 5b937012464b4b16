"""Asking backends for their models: it shows that they can be reached, and what they serve. Nothing is generated.

    answered            the list, or a refusal of the question (4xx but 408, and 501): an engine that runs
    unknown             anything else that came over a connection, or nothing in time; no word against a backend that serves
    unreachable         no connection: calls stay away until there is one (breaker.py)

It is asked with the URL and key of the traffic. Half a minute lies between two questions to a backend in use; five seconds while it has
not answered well or its breaker is not closed, for llama.cpp notices a caller that has left only while nobody else talks to it for a
second; one second while there is nobody to talk to. One that has never answered may still be starting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Final, Literal

from gateway.engines.base import ModelInfo, UnexpectedAnswerError
from gateway.pool.backend import Backend
from gateway.pool.transport import ConnectFailed, Transport, TransportError, Upstream
from gateway.pool.watchers import Watchers
from gateway.wire.request import json_object

log = logging.getLogger("trilemma.probe")

Found = Literal["answered", "unknown", "unreachable"]

_FIRST_S: Final = 0.1
_SOON_S: Final = 1.0
_SLOWEST_S: Final = 5.0
_REFRESH_S: Final = 30.0
# After the time to connect: for the answer.
_LIMIT_S: Final = 5.0
# What is due comes a little late.
_SLACK_S: Final = 1.0
_MAX_BYTES: Final = 4 << 20
_REFUSALS: Final = frozenset((*range(400, 500), 501)) - {408}


async def probe(transport: Transport, backend: Backend) -> Found:
    """Asks once. What was found is noted in the backend."""
    found, error = await _ask(transport, backend)
    backend.probed_at, backend.probe_error = time.monotonic(), error
    return found


async def _ask(transport: Transport, backend: Backend) -> tuple[Found, str | None]:
    headers = [(b"accept", b"application/json")]
    if backend.authorization is not None:
        headers.append((b"authorization", backend.authorization))
    connect_s = backend.timeouts.connect_s
    try:
        async with asyncio.timeout(connect_s + _LIMIT_S):
            # Fresh: whether it can be connected to is the question.
            upstream = await transport.send("GET", backend.url + "/v1/models", headers, b"", connect_s, fresh=True)
            body = await _body(upstream)
    except ConnectFailed as error:
        return "unreachable", f"no connection: {error}"
    except TransportError as error:
        return "unknown", str(error)
    except TimeoutError:
        return "unknown", "no answer in time"
    if upstream.status != 200:
        return "answered" if upstream.status in _REFUSALS else "unknown", f"status {upstream.status}"
    answer = json_object(body)
    if answer is None:
        return "answered", "no JSON object"
    try:
        cards = backend.adapter.models(answer)
    except UnexpectedAnswerError as error:
        return "answered", str(error)
    _take(backend, cards)
    return "answered", None


async def _body(upstream: Upstream) -> bytes:
    body = bytearray()
    try:
        while len(body) < _MAX_BYTES and (data := await upstream.read_some()):
            body += data
    finally:
        upstream.close()
    return bytes(body)


def _take(backend: Backend, cards: list[ModelInfo]) -> None:
    backend.cards = {card.id: card for card in cards}
    before = backend.changed
    backend.fingerprints.see(backend.adapter, backend.models, cards)
    left_out = backend.strangers
    for public, why in backend.changed.items():
        if public in before:
            continue
        if public in left_out:
            log.warning("backend %s does not serve %s any longer: %s", backend.name, public, why)
        else:
            log.warning("backend %s serves %s with another model than at first: %s", backend.name, public, why)
    for public in before.keys() - backend.changed.keys():
        log.info("backend %s serves %s again", backend.name, public)


class Prober:
    """One task per backend. Owned by a task group; `watch` again replaces the set."""

    def __init__(self, transport: Transport, group: asyncio.TaskGroup) -> None:
        self._watchers = Watchers(group, "probe", lambda backend: _Probes(transport, backend))

    def watch(self, backends: Iterable[Backend]) -> None:
        """Probes exactly these from now on, but for those that are disabled; one that trips at once."""
        known = tuple(backends)
        for backend in known:
            backend.breaker.on_trip = partial(self._tripped, backend)
        self._watchers.watch(known)

    def _tripped(self, backend: Backend) -> None:
        log.warning("backend %s is left alone for %.1f s after faults of its own", backend.name, backend.breaker.wait_s)
        self._watchers.at_once(backend)

    def stop(self) -> None:
        """Ends all probing."""
        self.watch(())


class _Probes:
    """The probes of one backend, and what its breaker is told of them."""

    def __init__(self, transport: Transport, backend: Backend) -> None:
        self._transport = transport
        self._backend = backend
        self._starting_s = _FIRST_S
        self._lost = False

    async def __call__(self) -> float:
        backend, breaker = self._backend, self._backend.breaker
        breaker.probing(backend.timeouts.connect_s + _SLACK_S)
        try:
            found = await probe(self._transport, backend)
        except Exception as error:
            backend.probed_at, backend.probe_error = time.monotonic(), f"a fault of the gateway's own: {type(error).__name__}"
            raise
        in_use = backend.answered or breaker.state != "closed"
        if found == "unreachable":
            if in_use:
                breaker.unreachable(_SOON_S + _SLACK_S)
                self._tell(lost=True)
                return _SOON_S
        else:
            breaker.reachable()
            self._tell(lost=False)
        if found == "answered":
            if not backend.answered:
                log.info("backend %s answers", backend.name)
            backend.answered = True
            return _REFRESH_S if breaker.state == "closed" else _SLOWEST_S
        if in_use:
            return _SLOWEST_S
        self._starting_s = min(self._starting_s * 1.5, _SLOWEST_S)
        return self._starting_s

    def _tell(self, *, lost: bool) -> None:
        if lost != self._lost:
            self._lost = lost
            if lost:
                log.warning("backend %s cannot be reached: %s", self._backend.name, self._backend.probe_error)
            else:
                log.info("backend %s can be reached again", self._backend.name)
