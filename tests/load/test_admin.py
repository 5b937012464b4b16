from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from gateway.load.admin import Admin
from gateway.load.scenario import ScenarioError
from gateway.mock import Behaviour, MockBackend
from gateway.pool.http1 import Http1Transport
from tests.support.running import KEY, Running

LISTED = json.dumps({"object": "list", "data": [{"name": "a", "in_flight": 2, "url": "http://a"}, {"name": "b", "in_flight": 0}]})


@pytest.fixture
async def transport() -> AsyncIterator[Http1Transport]:
    one = Http1Transport()
    yield one
    await one.close()


async def test_what_a_gateway_tells(transport: Http1Transport) -> None:
    listed, metrics = Behaviour(path="/admin/backends", body=LISTED), Behaviour(path="/metrics", body="up 1\n")
    async with MockBackend(script=[listed, metrics]) as gateway:
        admin = Admin(gateway.url, "sk-1", transport)

        assert await admin.in_flight() == {"a": 2, "b": 0}
        assert await admin.metrics() == "up 1\n"
        assert [request.header("authorization") for request in gateway.requests] == ["Bearer sk-1"] * 2


async def test_a_gateway_that_says_nothing_is_not_known(transport: Http1Transport) -> None:
    async with MockBackend(script=[Behaviour(path="/metrics", status=401)]) as gateway:
        admin = Admin(gateway.url, "sk-1", transport)
        assert await admin.metrics() == ""
        assert await admin.in_flight() is None  # 404
    assert await admin.metrics() == ""  # nobody there


async def test_a_backend_is_drained_and_brought_back_or_it_is_told_why_not(transport: Http1Transport) -> None:
    drained, not_yet = (Behaviour(path="/admin/backends/a", body=f'{{"name":"a","drained":{word}}}') for word in ("true", "false"))
    async with MockBackend(script=[drained, not_yet, not_yet]) as gateway:
        admin = Admin(gateway.url, "sk-1", transport)

        assert await admin.drain("a", 30) is True
        assert await admin.drain("a", 0.5) is False
        await admin.undrain("a")
        with pytest.raises(ScenarioError, match="a was to be serving, but the gateway answered 404"):
            await admin.undrain("a")

        asked = [(one.method, one.target, json.loads(one.body)) for one in gateway.requests[:3]]
        assert asked == [
            ("PATCH", "/admin/backends/a?wait_s=30", {"state": "draining"}),
            ("PATCH", "/admin/backends/a?wait_s=0.5", {"state": "draining"}),
            ("PATCH", "/admin/backends/a", {"state": "serving"}),
        ]
    with pytest.raises(ScenarioError, match="a was to be draining, but the gateway did not answer"):
        await admin.drain("a", 30)


async def test_a_gateway_understands(gateway: Running, transport: Http1Transport) -> None:
    admin = Admin(gateway.url, KEY, transport)
    backend = gateway.gateway.state.backends["mock"]

    assert await admin.in_flight() == {"mock": 0}
    assert await admin.drain("mock", 5) is True
    assert not backend.serves
    await admin.undrain("mock")
    assert backend.serves
