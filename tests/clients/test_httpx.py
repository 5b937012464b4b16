"""Plain HTTP: what a client that is no SDK sees of heads, bytes and connections."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.support.engine import STRONG, Started

CHAT = "/v1/chat/completions"
BODY = {"model": STRONG, "messages": [{"role": "user", "content": "Grüß mich: 你好 🙂"}], "max_tokens": 4}
ALWAYS = ("x-request-id", "x-trilemma-decision-id", "x-trilemma-model", "x-trilemma-policy", "x-trilemma-strategy", "x-trilemma-attempts")


def test_the_head_of_a_stream_forbids_buffering(http: httpx.Client) -> None:
    with http.stream("POST", CHAT, json=BODY | {"stream": True}, headers={"accept-encoding": "gzip"}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        assert {"content-length", "content-encoding"}.isdisjoint(answer.headers)
        assert set(ALWAYS) <= set(answer.headers)
        text = b"".join(answer.iter_raw()).decode()
    lines = [line for line in text.split("\n") if line]
    assert lines[-1] == "data: [DONE]"
    assert [json.loads(line.removeprefix("data: "))["object"] for line in lines[:-1]] == ["chat.completion.chunk"] * (len(lines) - 1)


def test_a_stream_comes_as_it_is_made(http: httpx.Client, stack: Started) -> None:
    """Its first events are here while the engine still writes: nobody collects them on the way."""
    with http.stream("POST", CHAT, json=BODY | {"stream": True, "max_tokens": 600, "ignore_eos": True}) as answer:
        reads = answer.iter_raw()
        first = next(reads)
        assert first.startswith(b"data: ") and b"[DONE]" not in first
        assert stack.backends()["strong"]["in_flight"] == 1
    stack.engine().until_idle()


def test_answers_and_streams_share_a_connection(stack: Started) -> None:
    opened: list[str] = []

    def trace(event: str, _info: object) -> None:
        if event == "connection.connect_tcp.complete":
            opened.append(event)

    with httpx.Client(base_url=stack.url, headers=stack.headers, timeout=120) as client:
        for stream in (False, True, False):
            assert client.post(CHAT, json=BODY | {"stream": stream}, extensions={"trace": trace}).status_code == 200
        assert client.get("/v1/models", extensions={"trace": trace}).status_code == 200
    assert len(opened) == 1


def test_the_caller_s_request_id_comes_back(http: httpx.Client) -> None:
    assert http.post(CHAT, json=BODY, headers={"x-request-id": "trace-7"}).headers["x-request-id"] == "trace-7"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "caller_not_found"),
        ("GET", "/v1/chat/completions", 405, "caller_method_not_allowed"),
        ("GET", "/nothing", 404, "caller_not_found"),
        ("DELETE", "/v1/models", 405, "caller_method_not_allowed"),
        ("POST", "/v1/files", 404, "caller_not_found"),
    ],
)
def test_what_there_is_not(http: httpx.Client, method: str, path: str, status: int, code: str) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]


def test_every_error_has_the_headers_of_an_answer(http: httpx.Client) -> None:
    answer = http.post(CHAT, content=b"{broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "caller_invalid_json")
    assert set(ALWAYS) <= set(answer.headers)


def test_the_key_of_no_request_reaches_the_engine_s_administration(http: httpx.Client) -> None:
    for path in ("/slots", "/metrics", "/props", "/v1/load_lora_adapter", "/apply-template"):
        assert http.post(path, json={"model": STRONG}).status_code in (404, 405), path
