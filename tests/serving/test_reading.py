from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path

import httpx
import pytest

from gateway.mock import MockBackend
from gateway.serving.call import Call
from gateway.serving.reading import fields_of
from gateway.wire.errors import ApiError
from tests.support.asking import error_of
from tests.support.running import config_for, running

CHAT = "/v1/chat/completions"
FORM = b"multipart/form-data; boundary=b"
SPEECH = "/v1/audio/transcriptions"


def form(*models: str) -> bytes:
    parts = [f'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\n{model}\r\n' for model in models]
    return "".join([*parts, "--b--\r\n"]).encode()


def model(body: bytes = b"", *kinds: bytes, query: bytes = b"", method: str = "POST", path: str = SPEECH) -> str | None:
    """The model that is found in such a request."""
    call = Call(method, path, query, [(b"content-type", kind) for kind in kinds], 0.0)
    fields, span = fields_of(call, body, 128, openai=path == CHAT)
    assert span is None or body[span[0] : span[1]].decode() == fields.model
    return fields.model


def refused(status: int, body: bytes = b"", *kinds: bytes, query: bytes = b"", method: str = "POST", path: str = SPEECH) -> ApiError:
    with pytest.raises(ApiError) as caught:
        model(body, *kinds, query=query, method=method, path=path)
    assert caught.value.status == status
    return caught.value


def test_where_a_model_is_named() -> None:
    assert model(b'{"model":"m"}', b"application/json") == "m"
    assert model(b'{"model":"m"}') == "m"
    assert model(b'{"model":"m"}', b"text/plain", path="/v1/rerank") == "m"
    assert model(b'{"model":"m"}', b"application/x-www-form-urlencoded", path=CHAT) == "m"  # as `curl -d` says of any body
    assert model(form("m"), FORM) == "m"
    assert model(query=b"a=1&model=org%2Fm", method="GET") == "org/m"
    assert model(query=b"model=m", path="/v1/responses/r/cancel") == "m"


@pytest.mark.parametrize("query", [b"model=m", b"a=1&model=m&model=m", b"model=m&mode=1"])
def test_the_same_model_may_be_named_again(query: bytes) -> None:
    assert model(b'{"model":"m"}', b"application/json", query=query) == "m"
    assert model(form("m"), FORM, query=query) == "m"
    assert model(query=query, method="DELETE") == "m"


@pytest.mark.parametrize("query", [b"model=other", b"model=m&model=other", b"mod%65l=other", b"a=1;model=other", b"model="])
def test_another_one_may_not(query: bytes) -> None:
    """Which of them a backend would take is not known, and the key may be good for one only."""
    assert refused(400, b'{"model":"m"}', b"application/json", query=query).param == "model"
    assert refused(400, form("m"), FORM, query=query).param == "model"


@pytest.mark.parametrize("query", [b"model=a&model=b", b"model=a&model=", b"model=a;model=b", b"model=", b"mod%65l=a", b"x;model=a"])
def test_a_query_names_one(query: bytes) -> None:
    refused(400, query=query, method="GET")


def test_no_model_at_all() -> None:
    assert refused(400, b"{}", b"application/json").param == "model"
    assert refused(400, b"--b--\r\n", FORM).param == "model"
    assert refused(400, form("m").replace(b"m\r\n--b--", b"\xff\r\n--b--"), FORM).param == "model"
    assert refused(404, method="GET").code == "caller_not_found"
    assert refused(400).code == "caller_invalid_json"


def test_forms_that_are_read_in_two_ways() -> None:
    refused(400, form("a", "b"), FORM)
    assert refused(415, b"model=m", b"application/x-www-form-urlencoded").code == "caller_unsupported_media_type"
    assert refused(415, b'{"model":"m","x":"&model=other&"}', b"Application/X-WWW-Form-Urlencoded; charset=utf-8").status == 415
    assert refused(415, form("m"), FORM, path=CHAT).code == "caller_unsupported_media_type"
    refused(400, b'{"model":"m"}', b"application/json", FORM)
    refused(400, form("m"), FORM, b"application/json")


@pytest.mark.parametrize("path", [CHAT, "/v1/rerank"])
@pytest.mark.parametrize("coding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, gzip"])
async def test_a_compressed_body_is_refused_by_name(mock: MockBackend, client: httpx.AsyncClient, path: str, coding: str) -> None:
    """Not as bad JSON, which would leave its sender without a clue; and never unpacked: a kilobyte may hold a gigabyte."""
    body = json.dumps({"model": "mock-model", "messages": []}).encode()
    packed = gzip.compress(body) if "gzip" in coding.lower() else zlib.compress(body)
    answer = await client.post(path, content=packed, headers={"content-type": "application/json", "content-encoding": coding})
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["code"]) == (415, "invalid_request_error", "caller_unsupported_media_type")
    assert "Content-Encoding" in error["message"]
    assert [request for request in mock.requests if request.path == path] == []


async def test_a_body_that_is_not_compressed_whatever_it_says(mock: MockBackend, client: httpx.AsyncClient) -> None:
    body = {"model": "mock-model", "messages": []}
    for coding in ("identity", "gzip"):
        assert (await client.post(CHAT, json=body, headers={"content-encoding": coding})).status_code == 200
        assert mock.requests[-1].header("content-encoding") is None


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS", "PROPFIND", "QUERY"])
async def test_methods_that_are_not_relayed(mock: MockBackend, client: httpx.AsyncClient, method: str) -> None:
    """TRACE above all: a backend would tell the caller which key the gateway sent."""
    answer = await client.request(method, "/v1/audio/voices/v", params={"model": "mock-model"})
    assert (answer.status_code, error_of(answer)["code"]) == (405, "caller_method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, POST, PUT"
    assert [request for request in mock.requests if request.path == "/v1/audio/voices/v"] == []


@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("MODEL", '"dear"', "model"),
        ("Model", '"dear"', "model"),
        ("m\\u004fdel", '"dear"', "model"),
        ("\\u004Dodel", '"dear"', "model"),
        ("STREAM", "true", "stream"),
        ("\u017ftream", "true", "stream"),
        ("\\u017Ftream", "true", "stream"),
        ("Stream_Options", '{"include_usage":false}', "stream_options"),
        ("stream_option\u017f", "null", "stream_options"),
        ("Trilemma", "{}", "trilemma"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
async def test_a_key_in_capitals(mock: MockBackend, tmp_path: Path, key: str, value: str, field: str, order: int) -> None:
    """Servers written in Go take it for the other: a key good for one model would open another, a stream would go uncounted."""
    body = "{" + ",".join(['"model":"cheap"', f'"{key}":{value}'][::order]) + ',"messages":[]}'
    backends = {"go": {"url": mock.url, "models": {"cheap": "cheap", "dear": "dear"}}}
    async with running(config_for(backends), tmp_path / "state") as run, run.client() as client:
        answer = await client.post(CHAT, content=body.encode())
    assert (answer.status_code, error_of(answer)["param"]) == (400, field)
    assert mock.requests_to(CHAT) == []


async def test_capitals_elsewhere_are_nobody_s_business(mock: MockBackend, tmp_path: Path) -> None:
    body = b'{"model":"mock-model","messages":[{"role":"user","content":"\\u004d"}],"metadata":{"MODEL":"x"},"a":"\\"Model\\"","N":1}'
    config = config_for({"go": {"url": mock.url, "models": {"mock-model": "mock-model"}}})
    async with running(config, tmp_path / "state") as run, run.client() as client:
        assert (await client.post(CHAT, content=body)).status_code == 200
    assert mock.requests_to(CHAT)[0].body == body
