"""A backend from its configuration: where its requests go, and what may stand in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.schema import Backend as Spec
from gateway.mock import MockBackend
from gateway.pool.backend import Backend, backend
from tests.support.raw import wire
from tests.support.running import config_for, running


def made(name: str = "b", url: str = "http://127.0.0.1:8000", **more: object) -> Backend:
    return backend(name, Spec.model_validate({"url": url, "models": {"m": "served"}} | more), url)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/v1/", "http://h:1"),
        ("https://h/openai/v1", "https://h/openai"),
        ("https://h/v1/openai", "https://h/v1/openai"),
    ],
)
def test_a_url_may_end_with_v1(url: str, base: str) -> None:
    assert made(url=url).url == base


def test_a_key_becomes_the_authorization_and_is_not_shown() -> None:
    one = made(key="sk-secret")
    assert one.authorization == b"Bearer sk-secret"
    assert "sk-secret" not in repr(one)
    assert made().authorization is None


@pytest.mark.parametrize("key", ["a\r\nx-evil: 1", "a\nb", "a\rb", "a b", "a\0b", "sk-é", "\x7f"])
def test_a_key_that_no_header_can_hold_makes_no_backend(key: str) -> None:
    """A file with two lines, for instance: its second would be a header of its own."""
    with pytest.raises(ValueError, match="key of backend `b`") as refused:
        made(key=key)
    assert key not in str(refused.value)


def test_headers_to_forward_are_compared_in_lower_case() -> None:
    assert made(forward_headers=["X-Tenant", "traceparent"]).forward == {b"x-tenant", b"traceparent"}


@pytest.mark.parametrize(
    "name",
    ["Content-Length", "transfer-encoding", "Host", "Connection", "Upgrade", "TE", "Trailer", "Expect", "Keep-Alive", "Proxy-Connection"],
)
def test_framing_is_never_forwarded(name: str) -> None:
    """The client's would stand beside the gateway's own: two readings of one request."""
    assert made(forward_headers=[name, "x-a"]).forward == {b"x-a"}


def test_what_the_gateway_says_itself_is_not_said_twice() -> None:
    assert made(forward_headers=["x-request-id", "accept-encoding"]).forward == frozenset()
    assert made(forward_headers=["authorization"], key="sk-1").forward == frozenset()
    assert made(forward_headers=["authorization"]).forward == {b"authorization"}


@pytest.mark.asyncio(loop_factories=["uvloop"])
async def test_a_request_over_such_a_configuration_is_framed_once(mock: MockBackend, tmp_path: Path) -> None:
    """The body that the gateway sends on is not the one that it was sent: it asks for usage."""
    forward = ["host", "content-length", "transfer-encoding", "connection", "expect", "x-tenant"]
    spec = {"url": mock.url, "engine": "vllm", "models": {"mock-model": "mock-model"}, "forward_headers": forward}
    body = b'{"model": "mock-model", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
    async with running(config_for({"mock": spec}), tmp_path) as run, wire(run.url) as client:
        client.post(body, "/v1/chat/completions", "x-tenant: blue")
        answer = await client.answer()
    assert answer.status == 200
    (received,) = [each for each in mock.requests if each.path == "/v1/chat/completions"]
    names = [name for name, _ in received.headers]
    assert len(set(names)) == len(names)
    assert "transfer-encoding" not in names
    assert dict(received.headers)["x-tenant"] == "blue"
    assert dict(received.headers)["host"] == mock.url.removeprefix("http://")
    assert int(dict(received.headers)["content-length"]) > len(body)


def test_a_backend_serves_unless_the_operator_says_otherwise() -> None:
    one = made()
    assert one.serves
    one.draining = True
    assert not one.serves
    one.draining, one.disabled = False, True
    assert not one.serves
    one.disabled = False
    assert one.serves
    assert not made(enabled=False).serves


def test_its_breaker_is_as_configured() -> None:
    by_share = made(breaker={"trip_after": 100, "trip_share": 0.25, "window": 8, "min_calls": 8}).breaker
    for fault in (True, False, False, False, False, False, False):
        if fault:
            by_share.faulted(by_share.begin(), "status")
        else:
            by_share.succeeded(by_share.begin())
    assert by_share.state == "closed"
    by_share.faulted(by_share.begin(), "status")
    assert by_share.state == "open", "two of eight"

    in_a_row = made(breaker={"trip_after": 2, "first_s": 50, "longest_s": 60}).breaker
    for _ in range(2):
        in_a_row.faulted(in_a_row.begin(), "status")
    assert 49 < in_a_row.wait_s <= 50
