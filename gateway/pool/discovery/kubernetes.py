"""The pods behind a Kubernetes Service: its EndpointSlices are listed once, then watched.

A watch says what changed since a version of the list. It ends often, and goes on from the last version heard of. When the API server no
longer knows that version (410), says something odd, or ends a watch without a word, the slices are listed anew. An empty list is believed:
the API server knows.
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from gateway import __version__
from gateway.config.files import reason
from gateway.pool.discovery.cluster import Cluster
from gateway.pool.discovery.slices import Event, Slice, SliceList, Status, replicas
from gateway.pool.discovery.source import Failed, Found, News
from gateway.pool.discovery.spec import KubernetesSpec
from gateway.pool.transport import Transport, TransportError, Upstream
from gateway.wire.errors import Header

T = TypeVar("T")

# How long one watch is asked to last. The API server says a word every minute or so, and one before it ends a watch; when it is silent
# for longer than that and a bit, it is not there any more.
WATCH_S: Final = 60
SILENCE_S: Final = WATCH_S + 10.0
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 15.0
_LIST_S: Final = 60.0
_MAX_LIST: Final = 32 << 20
_MAX_LINE: Final = 8 << 20
_FIRST_S: Final = 0.2
_LONGEST_S: Final = 30.0
_LONGEST_AFTER_S: Final = 300.0
# A watch that lived this long shows that all is well.
_STEADY_S: Final = 10.0
_SENDABLE: Final = re.compile(r"[!-~]+")


class _Trouble(Exception):
    """Something did not work. after_s: how long the API server wants to be left alone. stale: what is held cannot be gone on from."""

    def __init__(self, reason: str, *, after_s: float = 0.0, stale: bool = False) -> None:
        super().__init__(reason)
        self.after_s = after_s
        self.stale = stale


class _Stale(Exception):
    """The watch cannot go on from the version that is held."""


@dataclass
class _Held:
    """The slices by name, as of a version."""

    slices: dict[str, Slice]
    version: str


class _Pace:
    """Pauses from 0.2 s to 30 s, each twice the one before, shortened at random by up to half."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._next = _FIRST_S

    def reset(self) -> None:
        self._next = _FIRST_S

    def pause(self) -> float:
        pause = self._next
        self._next = min(pause * 2, _LONGEST_S)
        return pause * (1 - self._draw() / 2)


class Kubernetes:
    """connect: makes the transport to the API server, which is closed with the watch. draw: random numbers from 0 to 1."""

    def __init__(
        self,
        spec: KubernetesSpec,
        cluster: Cluster,
        connect: Callable[[], Transport],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._spec = spec
        self._cluster = cluster
        self._connect = connect
        self._sleep = sleep
        self._clock = clock
        self._draw = draw

    async def watch(self) -> AsyncGenerator[News, None]:
        """See Source.watch."""
        transport = self._connect()
        pace = _Pace(self._draw)
        held: _Held | None = None
        try:
            while True:
                began, after_s = self._clock(), 0.0
                try:
                    if held is None:
                        held = await _within(_LIST_S, self._list(transport))
                        yield self._news(held)
                    async with aclosing(self._follow(transport, held)) as batches:
                        async for changed in batches:
                            if changed:
                                pace.reset()
                            yield self._news(held)
                except _Stale:
                    held = None
                except _Trouble as trouble:
                    if trouble.stale:
                        held = None
                    after_s = trouble.after_s
                    yield Failed(str(trouble))
                if self._clock() - began >= _STEADY_S:
                    pace.reset()
                await self._sleep(max(pace.pause(), after_s))
        finally:
            await transport.close()

    def _news(self, held: _Held) -> News:
        try:
            return Found(replicas(held.slices.values(), self._spec))
        except ValueError as error:
            return Failed(f"service {self._spec.service}: {error}")

    async def _list(self, transport: Transport) -> _Held:
        """All slices of the Service, in as many parts as the API server likes."""
        slices: dict[str, Slice] = {}
        rest = ""
        while True:
            async with self._get(transport, {"continue": rest} if rest else {}) as upstream:
                body = bytearray()
                while data := await upstream.read_some():
                    body += data
                    if len(body) > _MAX_LIST:
                        raise _Trouble("the API server's list has no end")
            part = _decoded(bytes(body), SliceList)
            if part.kind != "EndpointSliceList" or not part.metadata.resource_version:
                raise _Trouble("the API server answered no list of EndpointSlices")
            slices |= {each.metadata.name: each for each in part.items or ()}
            rest = part.metadata.continue_
            if not rest:
                return _Held(slices, part.metadata.resource_version)

    async def _follow(self, transport: Transport, held: _Held) -> AsyncGenerator[bool, None]:
        """Brings `held` up to date for as long as one watch lasts; yields when that is done, and whether a slice has changed.

        What came together is one step. A line that the connection's end cut off is not lost: it comes again.
        """
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": held.version, "timeoutSeconds": str(WATCH_S)}
        async with self._get(transport, query) as upstream:
            yield False
            heard = False
            buffer = b""
            while data := await _within(SILENCE_S, upstream.read_some()):
                *lines, buffer = (buffer + data).split(b"\n")
                if len(buffer) > _MAX_LINE:
                    raise _Trouble("the API server sent an event without end", stale=True)
                changes = [_apply(line, held) for line in lines if line.strip()]
                if changes:
                    heard = True
                    yield any(changes)
            if buffer.strip():
                heard = True
                yield _apply(buffer, held)
            if not heard:  # a server that has lost our version may end like this, without a word
                raise _Stale

    @asynccontextmanager
    async def _get(self, transport: Transport, query: dict[str, str]) -> AsyncGenerator[Upstream, None]:
        """An answer of 200 within the block, where what goes wrong on the way is _Trouble. Raises _Stale for a 410."""
        cluster = self._cluster
        path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(cluster.namespace, safe='')}/endpointslices"
        selector = {"labelSelector": f"kubernetes.io/service-name={self._spec.service}"}
        headers = await self._headers()
        try:
            url = f"{cluster.server}{path}?{urlencode(selector | query)}"
            upstream = await _within(_ANSWER_S, transport.send("GET", url, headers, b"", _CONNECT_S))
            try:
                if upstream.status != 200:
                    raise await self._refused(upstream)
                yield upstream
            finally:
                upstream.close()
        except TransportError as error:
            raise _Trouble(f"the API server at {cluster.server}: {error}") from None

    async def _headers(self) -> list[Header]:
        headers = [(b"accept", b"application/json"), (b"user-agent", f"trilemma/{__version__}".encode())]
        try:
            token = await asyncio.to_thread(self._cluster.token)
        except OSError as error:
            raise _Trouble(f"{self._cluster.token_file}: {reason(error)}") from None
        if token is not None:
            if not _SENDABLE.fullmatch(token):
                raise _Trouble(f"{self._cluster.token_file}: holds no token")
            headers.append((b"authorization", b"Bearer " + token.encode()))
        return headers

    async def _refused(self, upstream: Upstream) -> Exception:
        status = upstream.status
        if status == 410:
            return _Stale()
        body = b""
        with suppress(TransportError):  # the head says enough
            while len(body) < 1 << 16 and (data := await _within(_ANSWER_S, upstream.read_some())):
                body += data
        said = dict(upstream.headers).get(b"retry-after", b"")
        after_s = min(float(said), _LONGEST_AFTER_S) if said.isdigit() else 0.0
        return _Trouble(f"the API server answered {status}{_words(body)}", after_s=after_s)


def _apply(line: bytes, held: _Held) -> bool:
    """Brings `held` up to an event, and says whether a slice has changed."""
    event = _decoded(line, Event)
    if event.type == "ERROR":
        status = _decoded(event.object, Status)
        if status.code == 410:
            raise _Stale
        raise _Trouble(f"the API server ended the watch: {status.code}{_words(bytes(event.object))}", stale=True)
    each = _decoded(event.object, Slice)
    name, version = each.metadata.name, each.metadata.resource_version
    if each.kind != "EndpointSlice" or not version:
        raise _Trouble("the API server sent an event about something else", stale=True)
    if event.type in ("ADDED", "MODIFIED"):
        held.slices[name] = each
    elif event.type == "DELETED":
        held.slices.pop(name, None)
    elif event.type != "BOOKMARK":
        raise _Trouble("the API server sent an event of a kind that is not known", stale=True)
    held.version = version
    return event.type != "BOOKMARK"


def _decoded(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Trouble(f"what the API server said cannot be read as {kind.__name__}: {error}", stale=True) from None


def _words(body: bytes) -> str:
    """The message of a Status, as one line that begins with a colon; nothing where there is none."""
    try:
        message = msgspec.json.decode(body, type=Status).message
    except (msgspec.DecodeError, RecursionError):
        return ""
    return f": {' '.join(message.split())[:300]}" if message else ""


async def _within(seconds: float, what: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await what
    except TimeoutError:
        raise _Trouble(f"the API server took longer than {seconds:g} s") from None
