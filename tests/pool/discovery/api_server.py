"""A Kubernetes API server as far as EndpointSlices go, written after its documentation, that also fails as real ones do.

https://kubernetes.io/docs/reference/using-api/api-concepts/
https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.pool.scripted import Peer, Request

SERVICE = "vllm"
Object = dict[str, Any]
Fault = Callable[[Peer], Awaitable[None]]
HTTP = [{"name": "http", "port": 8000, "protocol": "TCP"}]


def pod(
    address: str,
    name: str | None = None,
    *,
    ready: bool | None = True,
    serving: bool | None = True,
    terminating: bool | None = False,
) -> Object:
    """An endpoint of a slice as the controller writes it; a condition that is None is left out."""
    conditions = {"ready": ready, "serving": serving, "terminating": terminating}
    one: Object = {
        "addresses": [address],
        "conditions": {key: value for key, value in conditions.items() if value is not None},
        "nodeName": "node-1",
        "zone": "eu-1a",
    }
    if name is not None:
        one["targetRef"] = {"kind": "Pod", "namespace": "inference", "name": name, "uid": f"uid-of-{name}"}
    return one


def leaving(address: str) -> Object:
    """A pod that ends, and serves until then."""
    return pod(address, ready=False, serving=True, terminating=True)


def slice_(
    name: str, endpoints: Sequence[Object] | None, *, family: str = "IPv4", ports: Sequence[Object] | None = HTTP, service: str = SERVICE
) -> Object:
    """An EndpointSlice; the server gives it its version."""
    return {
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "generateName": f"{service}-",
            "namespace": "inference",
            "uid": f"uid-of-{name}",
            "generation": 1,
            "creationTimestamp": "2026-01-05T10:00:00Z",
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "kubernetes.io/service-name": service,
            },
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": service, "uid": "uid-of-service", "controller": True}],
        },
        "addressType": family,
        "endpoints": endpoints,
        "ports": ports,
    }


def status(code: int, reason: str, message: str) -> Object:
    """A Status: what every refusal holds."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def line(type_: str, object_: Object) -> bytes:
    """An event of a watch."""
    return json.dumps({"type": type_, "object": object_}).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"


def whole(code: int, body: bytes, *headers: bytes, kind: bytes = b"application/json") -> bytes:
    """An answer with its length."""
    lines = (b"HTTP/1.1 %d Said" % code, b"content-type: " + kind, b"content-length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def refusal(code: int, reason: str = "", message: str = "", *headers: bytes) -> Fault:
    """Answers with a Status."""

    async def answer(peer: Peer) -> None:
        await peer.send(whole(code, json.dumps(status(code, reason, message)).encode(), *headers))

    return answer


def says(*pieces: bytes) -> Fault:
    """Sends that, and closes."""

    async def answer(peer: Peer) -> None:
        await peer.send(*pieces)

    return answer


async def resets(peer: Peer) -> None:
    """Ends with RST instead of an answer."""
    peer.reset()


@dataclass(eq=False)
class _Watch:
    """One client's watch: what is still to be sent. torn: the next event is cut off after that many bytes."""

    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    torn: int | None = None


class ApiServer:
    """slices: by name. requests: as (query, headers). faults: each takes the next request. token: what it asks for.

    A change goes to every watch. `split` cuts what a watch sends into pieces.
    """

    def __init__(self, token: str | None = None) -> None:
        self.slices: dict[str, Object] = {}
        self.requests: list[tuple[dict[str, str], dict[bytes, bytes]]] = []
        self.faults: deque[Fault] = deque()
        self.token = token
        self.gone_by_status = False
        self.page: int | None = None
        self.split: Callable[[bytes], Sequence[bytes]] = lambda data: [data]
        self.url = ""
        self.version = 1_000
        self._oldest = self.version
        self._history: list[tuple[int, bytes]] = []
        self._watches: set[_Watch] = set()

    @property
    def watches(self) -> int:
        """How many clients watch."""
        return len(self._watches)

    # -- what happens in the cluster

    def put(self, object_: Object) -> None:
        """Creates or changes a slice."""
        name = object_["metadata"]["name"]
        self._happened("MODIFIED" if name in self.slices else "ADDED", object_)
        self.slices[name] = object_

    def delete(self, name: str) -> None:
        """Deletes a slice; the event shows it as it last was, at a new version."""
        if name in self.slices:
            self._happened("DELETED", self.slices.pop(name))

    def elsewhere(self) -> None:
        """Something else changes: the version moves."""
        self.version += 1

    # -- what happens to watches

    def bookmark(self) -> None:
        """Tells every watch how far it is."""
        self.say(line("BOOKMARK", self._bookmark()))

    def say(self, data: bytes) -> None:
        """Sends a line to every watch."""
        for watch in self._watches:
            watch.queue.put_nowait(data)

    def end(self) -> None:
        """Ends every watch in order, as after `timeoutSeconds`."""
        for watch in self._watches:
            watch.queue.put_nowait(None)

    def cut(self) -> None:
        """Resets every watch's connection."""
        for watch in self._watches:
            watch.queue.put_nowait(b"")

    def tear(self, after: int) -> None:
        """Every watch's next event is cut off after so many bytes of its line, and the connection closed."""
        for watch in self._watches:
            watch.torn = after

    def forget(self) -> None:
        """Forgets all history: only the version now can be watched from."""
        self._oldest = self.version
        self._history.clear()

    # -- serving

    async def __call__(self, peer: Peer) -> None:
        """A script for `scripted`: one connection."""
        while True:
            request = await peer.request()
            query = self._read(request)
            if self.faults:
                await self.faults.popleft()(peer)
                return
            headers = dict(request.headers)
            if self.token is not None and headers.get(b"authorization") != f"Bearer {self.token}".encode():
                await refusal(401, "Unauthorized", "Unauthorized")(peer)
            elif "watch" in query:
                await self._watch(peer, int(query["resourceVersion"]))
                return
            else:
                await peer.send(whole(200, json.dumps(self._list(query)).encode()))

    def _read(self, request: Request) -> dict[str, str]:
        method, target, _ = request.line.decode().split(" ")
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query, strict_parsing=True).items()}
        assert method == "GET"
        assert parts.path == "/apis/discovery.k8s.io/v1/namespaces/inference/endpointslices"
        assert query.pop("labelSelector") == f"kubernetes.io/service-name={SERVICE}"
        self.requests.append((query, dict(request.headers)))
        return query

    def _list(self, query: dict[str, str]) -> Object:
        items = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in self.slices.values()]
        meta: Object = {"resourceVersion": str(self.version)}
        start = int(query.get("continue", "0"))
        if self.page is not None and start + self.page < len(items):
            meta["continue"] = str(start + self.page)
        return {
            "kind": "EndpointSliceList",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": meta,
            "items": items[start : start + (self.page or len(items))],
        }

    async def _watch(self, peer: Peer, since: int) -> None:
        gone = status(410, "Expired", f"too old resource version: {since} ({self._oldest})")
        if since < self._oldest and self.gone_by_status:
            await peer.send(whole(410, json.dumps(gone).encode()))
            return
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        if since < self._oldest:
            await peer.send(chunk(line("ERROR", gone)), LAST_CHUNK)
            return
        watch = _Watch()
        for version, data in self._history:
            if version > since:
                watch.queue.put_nowait(data)
        self._watches.add(watch)
        try:
            await self._send(peer, watch)
        finally:
            self._watches.discard(watch)

    async def _send(self, peer: Peer, watch: _Watch) -> None:
        while (data := await watch.queue.get()) is not None:
            if not data:
                peer.reset()
                return
            if watch.torn is not None:
                await peer.send(chunk(data[: watch.torn]))
                return
            for piece in self.split(data):
                await peer.send(chunk(piece))
        await peer.send(LAST_CHUNK)

    def _happened(self, type_: str, object_: Object) -> None:
        self.version += 1
        object_["metadata"] = object_["metadata"] | {"resourceVersion": str(self.version)}
        data = line(type_, object_)
        self._history.append((self.version, data))
        self.say(data)

    def _bookmark(self) -> Object:
        return {
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": str(self.version), "creationTimestamp": None},
            "endpoints": None,
            "addressType": "",
            "ports": None,
        }
