"""What cannot be served is refused before a backend hears of it: an OpenAI error with the field's name, never a 500, never an echo."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.support.asking import ALWAYS, CHAT, error_of, question
from tests.support.raw import wire
from tests.support.running import KEY, Running

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")

JSON = {"content-type": "application/json"}
HEAD = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n".encode()
LIMIT = 100_000
"""`max_body_bytes` of the shared gateway."""
CANARY = "canary-7f3a"

NOT_JSON = {
    "nothing": b"",
    "a brace": b"{",
    "half a string": b'{"model":"mock-model","x":"' + CANARY.encode(),
    "text": CANARY.encode(),
    "NaN": b'{"model":"mock-model","temperature":NaN}',
    "Infinity": b'{"model":"mock-model","temperature":-Infinity}',
    "a comma too many": b'{"model":"mock-model",}',
    "single quotes": b"{'model':'mock-model'}",
    "two values": b'{"model":"mock-model"}{"model":"mock-model"}',
    "a byte order mark": b'\xef\xbb\xbf{"model":"mock-model"}',
    "UTF-16": '{"model":"mock-model"}'.encode("utf-16"),
    "invalid UTF-8": b'{"model":"mock-model","x":"\xff"}',
    "invalid UTF-8 in a key": b'{"model":"mock-model","\xc3\x28":1}',
    "a lone surrogate in UTF-8": b'{"model":"mock-model","x":"\xed\xa0\x80"}',
    "a control character": b'{"model":"mock-model","x":"a\x01b"}',
    "lists, 10,000 deep": b'{"model":"mock-model","x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "objects, 10,000 deep": b'{"model":"mock-model","x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "the gateway's object, 10,000 deep": b'{"model":"mock-model","trilemma":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "lists, 99,000 deep, without end": b'{"model":"mock-model","x":' + b"[" * 99_000,
    "half of a surrogate pair": b'{"model":"mock-model","x":"\\ud800"}',
    "half of a surrogate pair in a key": b'{"\\ud800":1,"model":"mock-model","model":"alias"}',
    "half of a surrogate pair in the gateway's object": b'{"model":"mock-model","trilemma":{"tags":{"\\udfff":"x"}}}',
    "an escape that is none": b'{"model":"mock-model","x":"\\q"}',
    "a number with a leading zero": b'{"model":"mock-model","x":01}',
    "a hexadecimal number": b'{"model":"mock-model","x":0x1}',
    "a NUL at the end": b'{"model":"mock-model"}\x00',
    "a comment": b'{"model":"mock-model"/* */}',
    "model twice": b'{"model":"mock-model","model":"alias"}',
    "model twice, once in escapes": b'{"model":"mock-model","mod\\u0065l":"alias"}',
    "stream twice": b'{"model":"mock-model","stream":true,"stream":false}',
    "the gateway's object twice": b'{"model":"mock-model","trilemma":{},"trilemma":{}}',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
async def test_bodies_that_are_not_json(mock: MockBackend, client: httpx.AsyncClient, gateway: Running, body: bytes) -> None:
    answer = await client.post(CHAT, content=body, headers=JSON)
    error = error_of(answer)
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["code"] in ("caller_invalid_json", "caller_invalid_value")
    assert CANARY not in answer.text
    assert all(name in answer.headers for name in ALWAYS)
    assert mock.requests == []
    await gateway.until_settled(1)
    assert gateway.settled[0].outcome == "caller_error"


WRONG: dict[str, tuple[Any, str | None]] = {
    "a list": ([], None),
    "null": (None, None),
    "a number": (5, None),
    "a string": ("mock-model", None),
    "no model": ({"messages": []}, "model"),
    "model null": (question(model=None), "model"),
    "model empty": (question(model=""), "model"),
    "model a number": (question(model=1), "model"),
    "model a list": (question(model=["mock-model"]), "model"),
    "stream a string": (question(stream="true"), "stream"),
    "stream a number": (question(stream=1), "stream"),
    "stream_options a list": (question(stream=True, stream_options=[]), "stream_options"),
    "include_usage a string": (question(stream=True, stream_options={"include_usage": "yes"}), "stream_options.include_usage"),
    "n zero": (question(n=0), "n"),
    "n negative": (question(n=-1), "n"),
    "n absurd": (question(n=10**9), "n"),
    "n beyond 64 bits": (question(n=10**30), "n"),
    "n a half": (question(n=1.5), "n"),
    "n a string": (question(n="2"), "n"),
    "n true": (question(n=True), "n"),
    "max_tokens absurd": (question(max_tokens=10**12), "max_tokens"),
    "max_tokens negative": (question(max_tokens=-2), "max_tokens"),
    "max_completion_tokens absurd": (question(max_completion_tokens=2**31), "max_completion_tokens"),
    "max_completion_tokens a list": (question(max_completion_tokens=[1]), "max_completion_tokens"),
}


@pytest.mark.parametrize(("body", "param"), WRONG.values(), ids=WRONG.keys())
async def test_fields_of_the_wrong_kind(mock: MockBackend, client: httpx.AsyncClient, body: Any, param: str | None) -> None:
    answer = await client.post(CHAT, content=json.dumps(body).encode(), headers=JSON)
    error = error_of(answer)
    assert (answer.status_code, error["type"], error["code"], error["param"]) == (
        400,
        "invalid_request_error",
        "caller_invalid_value",
        param,
    )
    assert mock.requests == []


@pytest.mark.parametrize("field", ["n", "max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    "value", ["1e309", "-1e309", "9223372036854775808", "18446744073709551616", "1" + "0" * 5_000, "1.5", '"7"', "true", "[]", "{}", "-5"]
)
async def test_numbers_that_no_engine_can_take(mock: MockBackend, client: httpx.AsyncClient, field: str, value: str) -> None:
    answer = await client.post(CHAT, content=f'{{"model":"mock-model","{field}":{value}}}'.encode(), headers=JSON)
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["param"]) == (400, "caller_invalid_value", field)
    assert len(answer.content) < 300
    assert mock.requests == []


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/v1/rerank", "/v1/responses"])
@pytest.mark.parametrize(
    "name", ["gpt-typo", "MOCK-MODEL", "mock-model ", "модель", "x" * 10_000, "../mock-model", "\x00", "a\x1b[31m\r\nb"]
)
async def test_unknown_models(mock: MockBackend, client: httpx.AsyncClient, path: str, name: str) -> None:
    """404 that names what was asked for, in short, and nothing else: no list of models, no address, no key."""
    answer = await client.post(path, json={"model": name})
    error = error_of(answer)
    assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert re.sub(r"[\x00-\x1f]", "\ufffd", name[:50]) in error["message"]
    assert "`mock-model`" not in error["message"] and "alias" not in answer.text and "sk-" not in answer.text
    assert len(answer.content) < 500
    assert mock.requests == []


async def test_absurd_but_legal_values_are_the_engine_s_to_judge(mock: MockBackend, client: httpx.AsyncClient) -> None:
    for extra in ({"n": None}, {"n": 128}, {"max_tokens": -1}, {"max_tokens": 2**31 - 1}, {"temperature": 1e300}, {"max_tokens": 5.0}):
        mock.script(Behaviour(body="{}"))
        assert (await client.post(CHAT, json=question(**extra))).status_code == 200


# -- too large


async def test_the_largest_body_passes(mock: MockBackend, client: httpx.AsyncClient) -> None:
    body = b'{"model":"mock-model","x":"' + b"x" * (LIMIT - 29) + b'"}'
    assert len(body) == LIMIT
    mock.script(Behaviour(body="{}"))
    assert (await client.post(CHAT, content=body, headers=JSON)).status_code == 200
    assert mock.requests[-1].body == body


async def test_one_byte_more_does_not(mock: MockBackend, gateway: Running) -> None:
    """Said by its length, it is refused before a byte of it is read, and before it is looked at: it is no bad JSON."""
    async with wire(gateway.url) as connection:
        connection.send(HEAD + f"expect: 100-continue\r\ncontent-length: {LIMIT + 1}\r\n\r\n".encode())
        answer = await connection.answer()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (413, "caller_body_too_large", "invalid_request_error")
    assert all(name in answer.headers for name in ALWAYS)
    assert mock.requests == []


async def test_a_body_that_hides_its_length(mock: MockBackend, gateway: Running) -> None:
    """Sent in chunks without end, it is refused as soon as it passes the limit."""
    async with wire(gateway.url) as connection:
        connection.send(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(LIMIT // 1000 + 1):
            connection.send(b"3e8\r\n" + b"[" * 1000 + b"\r\n")
        answer = await connection.answer()
    assert (answer.status, answer.error["code"]) == (413, "caller_body_too_large")
    assert mock.requests == []


async def test_a_chunked_body_within_the_limit(mock: MockBackend, gateway: Running) -> None:
    """Its bytes arrive with a length: the backend sees one framing."""
    body = b'{"model":"mock-model","x":"' + b"y" * 70_000 + b'"}'
    mock.script(Behaviour(body="{}"))
    async with wire(gateway.url) as connection:
        connection.send(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 999):
            piece = body[start : start + 999]
            connection.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        connection.send(b"0\r\nx-trailer: 1\r\n\r\n")
        assert (await connection.answer()).status == 200
    request = mock.requests[-1]
    assert (request.body, request.header("content-length"), request.header("transfer-encoding")) == (body, str(len(body)), None)
    assert request.header("x-trailer") is None


async def test_a_body_without_a_key_is_not_read(gateway: Running) -> None:
    async with wire(gateway.url) as connection:
        connection.send(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000\r\n\r\n".encode())
        answer = await connection.answer()
    assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")


# -- keys


REFUSED = {
    "none": (),
    "empty": ("authorization: ",),
    "no token": ("authorization: Bearer",),
    "an empty token": ("authorization: Bearer  ",),
    "another scheme": (f"authorization: Basic {KEY}",),
    "no scheme": (f"authorization: {KEY}",),
    "a wrong key": ("authorization: Bearer sk-canary-wrong",),
    "not ASCII": ("authorization: Bearer ключ",),
    "two keys in one": (f"authorization: Bearer {KEY} {KEY}",),
    "a list of two": (f"authorization: Bearer {KEY}, Bearer {KEY}",),
    "two headers": (f"authorization: Bearer {KEY}", "authorization: Bearer sk-canary-wrong"),
    "the good key twice": (f"authorization: Bearer {KEY}", f"authorization: Bearer {KEY}"),
    "a prefix of it": (f"authorization: Bearer {KEY[:-1]}",),
    "its digest": ("authorization: Bearer " + "a" * 64,),
    "a novel": ("authorization: Bearer " + "x" * 20_000,),
    "in another header": (f"x-auth-token: {KEY}",),
}


@pytest.mark.parametrize("lines", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.parametrize("target", [f"POST {CHAT}", "GET /v1/models", "GET /admin/config"])
async def test_keys_that_open_nothing(gateway: Running, mock: MockBackend, lines: tuple[str, ...], target: str) -> None:
    async with wire(gateway.url) as connection:
        head = "".join(f"{line}\r\n" for line in ("host: x", *lines))
        connection.send(f"{target} HTTP/1.1\r\n{head}content-length: 2\r\n\r\n{{}}".encode())
        answer = await connection.answer()
    assert (answer.status, answer.error["code"], answer.error["type"]) == (401, "invalid_api_key", "authentication_error")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    assert b"canary" not in answer.body and KEY.encode() not in answer.body
    assert [request for request in mock.requests if request.path != "/v1/models"] == []


@pytest.mark.parametrize("value", [f"bearer {KEY}", f"BEARER {KEY}", f"Bearer   {KEY}", f"Bearer {KEY}  "])
async def test_what_a_good_key_may_look_like(gateway: Running, value: str) -> None:
    """A scheme's name has no case, and blanks around a value are none of it."""
    async with wire(gateway.url) as connection:
        connection.send(f"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: {value}\r\n\r\n".encode())
        assert (await connection.answer()).status == 200
