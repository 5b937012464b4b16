"""What the other client is for: backends behind a proxy. And what it must not bring along."""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import pytest

from gateway.pool.aiohttp_transport import AiohttpTransport
from gateway.pool.transport import ConnectFailed
from tests.pool.answers import HELLO, NOT_REUSED
from tests.pool.scripted import BOTH_LOOPS, Scripted, answering, ask

pytestmark = [BOTH_LOOPS, pytest.mark.usefixtures("watched", "no_proxies")]

BEHIND = "http://backend.example:8000/v1/x?a=b"


def address(server: Scripted) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1/x")


async def asked(url: str) -> bytes:
    transport = AiohttpTransport()
    try:
        return (await ask(transport, url)).body
    finally:
        await transport.close()


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_a_backend_behind_a_proxy(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    async with answering(HELLO) as proxy:
        monkeypatch.setenv("HTTP_PROXY", scheme + address(proxy))
        assert await asked(BEHIND) == b"hello"
        assert proxy.requests[0].line == b"POST http://backend.example:8000/v1/x?a=b HTTP/1.1"
        assert dict(proxy.requests[0].headers)[b"host"] == b"backend.example:8000"


async def test_a_proxy_that_wants_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(HELLO) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://user:pass@{address(proxy)}")
        assert await asked(BEHIND) == b"hello"
        headers = dict(proxy.requests[0].headers)
        assert headers[b"proxy-authorization"] == b"Basic " + base64.b64encode(b"user:pass")
        assert b"authorization" not in headers


async def test_hosts_that_need_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(HELLO) as server, answering(HELLO) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{address(proxy)}")
        monkeypatch.setenv("NO_PROXY", "other.example,127.0.0.1")
        assert await asked(server.url) == b"hello"
        assert (len(server.requests), len(proxy.requests)) == (1, 0)


async def test_https_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy refuses it: nothing was sent to the backend."""
    async with answering(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://{address(proxy)}")
        with pytest.raises(ConnectFailed):
            await asked("https://backend.example/v1/x")
        assert proxy.requests[0].line == b"CONNECT backend.example:443 HTTP/1.1"


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectFailed):
            await asked(BEHIND)


async def test_passwords_of_the_user_are_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password pass\ndefault login user password pass\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    async with answering(HELLO) as server:
        assert await asked(server.url) == b"hello"
        assert b"authorization" not in dict(server.requests[0].headers)


@pytest.mark.parametrize("name", NOT_REUSED)
async def test_what_one_backend_says_too_much_never_answers_another_request(name: str) -> None:
    transport = AiohttpTransport()
    async with answering(NOT_REUSED[name][0], HELLO) as server:
        for _ in range(2):
            await ask(transport, server.url)
        assert len(server.peers) == 2
    await transport.close()
