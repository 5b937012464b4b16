"""The gateway as its operator asks it: what runs, what it counts, and which backend is to get no more calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.load.asking import call
from gateway.load.scenario import ScenarioError
from gateway.pool.transport import Transport, TransportError

_WITHIN_S: Final = 5.0


class _Backend(msgspec.Struct):
    name: str
    in_flight: int


class _Backends(msgspec.Struct):
    data: list[_Backend]


class _Drained(msgspec.Struct):
    drained: bool


class Admin:
    """`/admin` and `/metrics` of a gateway that was started for the run."""

    def __init__(self, url: str, key: str, transport: Transport) -> None:
        self._url = url
        self._headers = [(b"authorization", f"Bearer {key}".encode())]
        self._transport = transport

    async def in_flight(self) -> Mapping[str, int] | None:
        """Calls in flight by backend; None when it cannot say."""
        listed = await self._read("/admin/backends")
        return None if listed is None else {one.name: one.in_flight for one in msgspec.json.decode(listed, type=_Backends).data}

    async def metrics(self) -> str:
        """Its /metrics; "" when there are none."""
        return (await self._read("/metrics") or b"").decode()

    async def drain(self, backend: str, within_s: float) -> bool:
        """Tells it to send the backend no more calls. Whether those that ran there ended within that time. Raises ScenarioError."""
        said = await self._tell(backend, "draining", f"?wait_s={within_s:g}", within_s + _WITHIN_S)
        return msgspec.json.decode(said, type=_Drained).drained

    async def undrain(self, backend: str) -> None:
        """Tells it to send the backend calls again. Raises ScenarioError."""
        await self._tell(backend, "serving", "", _WITHIN_S)

    async def _tell(self, backend: str, state: str, query: str, within_s: float) -> bytes:
        url = f"{self._url}/admin/backends/{backend}{query}"
        body, headers = msgspec.json.encode({"state": state}), [*self._headers, (b"content-type", b"application/json")]
        try:
            status, said = await call(self._transport, "PATCH", url, body, headers, within_s)
        except (TransportError, TimeoutError) as error:
            raise ScenarioError(f"{backend} was to be {state}, but the gateway did not answer: {error!r}") from None
        if status != 200:
            raise ScenarioError(f"{backend} was to be {state}, but the gateway answered {status}: {said.decode(errors='replace')}")
        return said

    async def _read(self, path: str) -> bytes | None:
        try:
            status, body = await call(self._transport, "GET", self._url + path, headers=self._headers, within_s=_WITHIN_S)
        except (TransportError, TimeoutError):
            return None
        return body if status == 200 else None
