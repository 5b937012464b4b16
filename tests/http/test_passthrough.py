"""A request reaches the backend as it was sent: byte for byte, but for the few places that are the gateway's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend
from tests.http.conftest import Both
from tests.support.asking import CHAT, chunks, data, question
from tests.support.raw import wire
from tests.support.running import KEY, Running, config_for, running

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANES = ("hot", "asgi", "fastapi")

JSON = {"content-type": "application/json"}
ANSWER = Behaviour(body='{"object":"x"}', times=0)
SCHEMA = {"$defs": {"a": {"type": "object", "additionalProperties": False}}, "$ref": "#/$defs/a", "additionalProperties": False}

UNCHANGED: dict[str, tuple[str, str]] = {
    "blanks, order and numbers": (CHAT, '{ "zz" : [1 , 1.0,1e5,-0.0, 12345678901234567890123] ,\n\t"model":\r\n"mock-model", "a":null}'),
    "null stays null": (CHAT, '{"model":"mock-model","messages":[],"stop":null,"stream":null,"n":null,"tools":null,"stream_options":null}'),
    "engines' own parameters": (
        CHAT,
        '{"chat_template_kwargs":{"enable_thinking":false},"min_p":0.05,"structured_outputs":{"choice":["a","b"]},'
        '"zz_future":[1,{"k":null}],"model":"mock-model"}',
    ),
    "extra_body is no magic word": (CHAT, '{"model":"mock-model","extra_body":{"trilemma":{"x":1},"model":"alias"}}'),
    "escapes and characters": (CHAT, '{"model":"mock-model","messages":[{"role":"user","content":"\\u00e9 é \\ud83d\\ude42 🙂 \\/"}]}'),
    "a model's name in a text": (CHAT, '{"messages":[{"content":"say \\"model\\": \\"alias\\" and \\"trilemma\\""}],"model":"mock-model"}'),
    "developer role, anywhere": (
        CHAT,
        '{"model":"mock-model","messages":[{"role":"system","content":"a"},{"role":"developer","content":[{"type":"text","text":"b"}]},'
        '{"role":"user","content":"c"},{"role":"developer","content":"d"}]}',
    ),
    "both limits of tokens": (CHAT, '{"model":"mock-model","max_tokens":10,"max_completion_tokens":500,"messages":[]}'),
    "the newer limit on completions": ("/v1/completions", '{"model":"mock-model","prompt":"a","max_completion_tokens":500}'),
    "a JSON schema": (CHAT, json.dumps({"model": "mock-model", "response_format": {"json_schema": {"strict": True, "schema": SCHEMA}}})),
    "parts in tool messages and sound": (
        CHAT,
        '{"model":"mock-model","messages":[{"role":"tool","content":[{"type":"text","text":"t"},{"type":"image_url","image_url":'
        '{"url":"data:image/png;base64,AAAA"}}]},{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA"}}]}]}',
    ),
    "ids of tool calls that are null": (
        CHAT,
        '{"model":"mock-model","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":null,"type":"function",'
        '"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":null,"content":"x"}]}',
    ),
    "the same unknown key twice": (CHAT, '{"zz":1,"model":"mock-model","zz":2}'),
    "usage asked for already": (CHAT, '{"model":"mock-model","stream":true,"stream_options":{"include_usage":true,"zz":1}}'),
    "token ids": ("/v1/completions", '{"model":"mock-model","prompt":[[1,2],[3]]}'),
    "embeddings": ("/v1/embeddings", '{"input":["a",""],"model":"mock-model","encoding_format":"base64","stream":true}'),
}


@pytest.mark.parametrize(("path", "body"), UNCHANGED.values(), ids=UNCHANGED.keys())
async def test_a_body_arrives_as_it_was_sent(mock: MockBackend, client: httpx.AsyncClient, path: str, body: str) -> None:
    mock.script(ANSWER)
    answer = await client.post(path, content=body.encode(), headers=JSON)
    assert answer.status_code == 200
    assert mock.requests[-1].target == path
    assert mock.requests[-1].body == body.encode()


async def test_a_large_body_arrives_whole(mock: MockBackend, client: httpx.AsyncClient) -> None:
    body = json.dumps(question(padding="é" * 49_000), ensure_ascii=False).encode()
    assert 98_000 < len(body) < 100_000
    mock.script(ANSWER)
    assert (await client.post(CHAT, content=body, headers=JSON)).status_code == 200
    assert mock.requests[-1].body == body


SPLICED = {
    "the gateway's object, first": ('{"trilemma":{"tags":{"a":"}\\"{"}}, "model":"mock-model"}', '{"model":"mock-model"}'),
    "the gateway's object, between": (
        '{"model":"mock-model" , "trilemma" : {} , "a":[{"trilemma":1}]}',
        '{"model":"mock-model" , "a":[{"trilemma":1}]}',
    ),
    "the gateway's object, last": ('{ "model":"mock-model", "trilemma": null }', '{ "model":"mock-model" }'),
    "an alias": (
        '{"messages":[{"model":"alias"}] ,"model" :  "alias","user":"alias"}',
        '{"messages":[{"model":"alias"}] ,"model" :  "mock-model","user":"alias"}',
    ),
    "an alias in escapes": ('{"model":"\\u0061lias","a":1.0}', '{"model":"mock-model","a":1.0}'),
    "an alias under an escaped key": ('{"mod\\u0065l":"alias","a":1.0}', '{"mod\\u0065l":"mock-model","a":1.0}'),
    "a virtual model": ('{"a":null,"model":"auto"}', '{"a":null,"model":"mock-model"}'),
    "an alias and the object": ('{"trilemma":{},"model":"alias","b":2}', '{"model":"mock-model","b":2}'),
    "a stream": ('{"model":"mock-model","stream":true}', '{"stream_options":{"include_usage":true},"model":"mock-model","stream":true}'),
    "a stream with other options": (
        '{"model":"mock-model","stream":true,"stream_options":{"zz":[null], "include_usage":false}}',
        '{"model":"mock-model","stream":true,"stream_options":{"zz":[null],"include_usage":true}}',
    ),
    "all at once": (
        '{"stream":true,"trilemma":{},"model":"auto","stream_options":null}',
        '{"stream":true,"model":"mock-model","stream_options":{"include_usage":true}}',
    ),
}


@pytest.mark.parametrize(("sent", "arrives"), SPLICED.values(), ids=SPLICED.keys())
async def test_what_is_spliced_and_nothing_else(mock: MockBackend, client: httpx.AsyncClient, sent: str, arrives: str) -> None:
    mock.script(ANSWER)
    assert (await client.post(CHAT, content=sent.encode(), headers=JSON)).status_code == 200
    assert mock.requests[-1].body.decode() == arrives


@pytest.mark.parametrize("name", ["alias", "auto", "mock-model"])
@pytest.mark.parametrize(
    ("path", "extra"), [(CHAT, {"messages": []}), ("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": "a"})]
)
async def test_names_are_resolved_on_every_endpoint(
    mock: MockBackend, client: httpx.AsyncClient, path: str, extra: dict[str, Any], name: str
) -> None:
    """The backend hears the name it knows; the answer says what the backend wrote."""
    answer = await client.post(path, json={"model": name, **extra})
    assert answer.status_code == 200
    assert json.loads(mock.requests[-1].body)["model"] == "mock-model"
    assert answer.json()["model"] == "mock-model"
    assert answer.headers["x-trilemma-model"] == "mock-model"


async def test_each_model_s_own_backend_answers(tmp_path: Path) -> None:
    """On every endpoint, under the name that the backend knows; what the answer calls itself is left."""
    async with MockBackend(["one"]) as first, MockBackend(["two/own-name"]) as second:
        config = config_for(
            {"a": {"url": first.url, "models": {"one": "one"}}, "b": {"url": second.url + "/v1", "models": {"two": "two/own-name"}}},
            models={"two": {"aliases": ["zwei"]}},
        )
        async with running(config, tmp_path) as run, run.client() as client:
            for path, extra in (("/v1/completions", {"prompt": "a"}), ("/v1/embeddings", {"input": "a"}), (CHAT, {"messages": []})):
                for name in ("two", "zwei"):
                    answer = await client.post(path, json={"model": name, **extra})
                    assert answer.json()["model"] == "two/own-name"
                assert (await client.post(path, json={"model": "two/own-name", **extra})).json()["error"]["code"] == "model_not_found"
            assert not [request for request in first.requests if request.method == "POST"]
            assert len([request for request in second.requests if request.method == "POST"]) == 6


# -- usage asked for


async def test_a_backend_that_does_not_know_the_usage_option_is_asked_once_more(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running
) -> None:
    """The option was the gateway's own: its refusal is not the caller's, whose stream is as if asked directly."""
    mock.script(Behaviour(reject_include_usage=True, text="fine", times=2))
    body = b'{"model":"mock-model","messages":[],"stream":true}'
    answer = await client.post(CHAT, content=body, headers=JSON)
    assert answer.status_code == 200
    assert "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks(answer.content)) == "fine"
    assert data(answer.content)[-1] == b"[DONE]"
    assert [b"include_usage" in request.body for request in mock.requests] == [True, False]
    assert mock.requests[-1].body == body
    assert answer.headers["x-trilemma-attempts"] == "2"
    await gateway.until_settled(1)
    assert [call.estimated for call in gateway.settled[0].calls] == [False, True]


async def test_a_caller_s_own_option_is_not_taken_back(mock: MockBackend, both: Both) -> None:
    behaviour = Behaviour(reject_include_usage=True, times=0)
    for options in ({"include_usage": True}, {"include_usage": False, "zz": 1}):
        pair = await both(behaviour, question(stream=True, stream_options=options))
        assert (pair.relayed.status_code, pair.relayed.content) == (400, pair.direct.content)
        mock.reset()


async def test_another_refusal_of_a_stream_is_not_repeated(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(status=400, body='{"error":{"message":"bad temperature"}}'))
    answer = await client.post(CHAT, json=question(stream=True))
    assert (answer.status_code, answer.text, len(mock.requests)) == (400, '{"error":{"message":"bad temperature"}}', 1)


# -- headers


async def test_headers_that_cross_and_headers_that_do_not(mock: MockBackend, client: httpx.AsyncClient) -> None:
    """A caller's key and cookies stay here; the backend sees the gateway's key, the kind of body and the trace."""
    mock.script(ANSWER)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await client.post(
        CHAT,
        json=question(),
        headers={
            "traceparent": trace,
            "cookie": "a=b",
            "x-goog-api-key": "sk-other",
            "x-custom": "1",
            "openai-organization": "o",
            "user-agent": "me/1",
        }
        | {"x-trilemma-session-id": "s", "x-stainless-lang": "python", "x-forwarded-for": "1.2.3.4", "accept-encoding": "br"},
    )
    seen = {name.lower(): value for name, value in mock.requests[-1].headers}
    assert seen["authorization"] == "Bearer sk-backend"
    assert seen["traceparent"] == trace
    assert seen["user-agent"] == "me/1"
    assert seen["content-type"] == "application/json"
    assert seen["accept-encoding"] == "identity"
    assert seen["host"] == mock.url.removeprefix("http://")
    assert not [name for name in seen if name in ("cookie", "x-goog-api-key", "x-custom", "openai-organization", "x-forwarded-for")]
    assert not [name for name in seen if name.startswith(("x-trilemma-", "x-stainless-"))]
    assert KEY not in str(mock.requests[-1].headers)


async def test_a_backend_without_a_key_gets_none(mock: MockBackend, tmp_path: Path) -> None:
    backend = {"url": mock.url, "models": {"mock-model": "mock-model"}, "forward_headers": ["X-Custom"]}
    async with running(config_for({"mock": backend}), tmp_path) as run, run.client() as client:
        await client.post(CHAT, json=question(), headers={"x-custom": "kept", "x-other": "not"})
    request = mock.requests_to(CHAT)[-1]
    assert (request.header("authorization"), request.header("x-custom"), request.header("x-other")) == (None, "kept", None)


# -- any other endpoint


async def test_other_json_endpoints_are_relayed_by_model(mock: MockBackend, client: httpx.AsyncClient) -> None:
    for path in ("/v1/responses", "/v1/rerank", "/v1/messages", "/v1/audio/speech", "/v1/responses/input_tokens"):
        mock.script(Behaviour(path=path, body='{"of":"the backend"}', headers={"x-own": "1"}))
        answer = await client.post(path + "?a=b%20c", content=b'{ "query":"q", "model":"alias" }', headers=JSON)
        assert (answer.status_code, answer.text, answer.headers["x-own"]) == (200, '{"of":"the backend"}', "1")
        assert mock.requests[-1].target == path + "?a=b%20c"
        assert mock.requests[-1].body == b'{ "query":"q", "model":"mock-model" }'


async def test_a_body_that_is_not_json_comes_back_as_it_is(mock: MockBackend, client: httpx.AsyncClient) -> None:
    sound = bytes(range(256)) * 40
    mock.script(Behaviour(path="/v1/audio/speech", body_bytes=sound, headers={"content-type": "audio/mpeg"}))
    answer = await client.post("/v1/audio/speech", json={"model": "mock-model", "input": "hi"})
    assert (answer.content, answer.headers["content-type"]) == (sound, "audio/mpeg")


@pytest.mark.parametrize("model", ["mock-model", "alias", "auto"])
async def test_a_form_s_model_field(mock: MockBackend, client: httpx.AsyncClient, model: str) -> None:
    """Files are never parsed: only the value of `model` changes, and only when it is another name of the model."""
    sound = b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nnot-me' + bytes(range(256))
    path = "/v1/audio/transcriptions"
    mock.script(Behaviour(path=path, body='{"text":"hi"}'))
    form = httpx.Request("POST", "http://x", files={"file": ("a.wav", sound, "audio/wav")}, data={"language": "de", "model": model})
    sent, kind = form.read(), form.headers["content-type"]
    answer = await client.post(path, content=sent, headers={"content-type": kind})
    assert answer.json() == {"text": "hi"}
    assert mock.requests[-1].body == sent.replace(f"\r\n\r\n{model}\r\n".encode(), b"\r\n\r\nmock-model\r\n")
    assert mock.requests[-1].header("content-type") == kind


async def test_a_form_without_a_model(mock: MockBackend, client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/audio/transcriptions", files={"file": ("a.wav", b"RIFF", "audio/wav")})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    assert mock.requests == []


async def test_get_and_delete_name_the_model_in_the_query(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(*(Behaviour(path="/v1/audio/voices/v_1", body='{"id":"resp_1"}') for _ in range(2)))
    for method in ("GET", "DELETE"):
        answer = await client.request(method, "/v1/audio/voices/v_1", params={"model": "mock-model"})
        assert (answer.status_code, answer.json()) == (200, {"id": "resp_1"})
        assert (mock.requests[-1].method, mock.requests[-1].body) == (method, b"")
    assert (await client.get("/v1/audio/voices/v_1", params={"model": "nobody"})).json()["error"]["code"] == "model_not_found"
    assert (await client.get("/v1/audio/voices/v_1")).json()["error"]["code"] == "caller_not_found"
    assert len(mock.requests) == 2


@pytest.mark.parametrize(("asked", "hears"), [("alias", "mock-model"), ("auto", "mock-model"), ("%61lias", "mock-model")])
async def test_an_alias_in_the_query(mock: MockBackend, client: httpx.AsyncClient, asked: str, hears: str) -> None:
    path = "/v1/audio/voices/v_1"
    mock.script(Behaviour(path=path, body="{}"))
    assert (await client.get(f"{path}?submodel=alias&model={asked}&a=%20b")).status_code == 200
    assert mock.requests[-1].target == f"{path}?submodel=alias&model={hears}&a=%20b"


async def test_an_answer_without_content(mock: MockBackend, gateway: Running) -> None:
    mock.script(Behaviour(path="/v1/audio/voices/v_1", raw=b"HTTP/1.1 204 No Content\r\n\r\n"))
    async with wire(gateway.url) as connection:
        lines = f"host: x\r\nauthorization: Bearer {KEY}\r\n\r\n".encode()
        connection.send(b"DELETE /v1/audio/voices/v_1?model=mock-model HTTP/1.1\r\n" + lines)
        status, headers = await connection.head()
        assert status == 204
        assert "content-length" not in headers and "transfer-encoding" not in headers
        connection.send(b"GET /health HTTP/1.1\r\n" + lines)
        assert (await connection.answer()).status == 200


async def test_head_has_no_body(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(path="/v1/audio/voices/v_1", body='{"id":"resp_1"}'))
    answer = await client.head("/v1/audio/voices/v_1", params={"model": "mock-model"})
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/v1/completions/render",
        "/v1/files",
        "/v1/batches/b",
        "/v1/responses/resp_1",  # what an engine stores is kept under the gateway's one key, so it would be everybody's
        "/v1/conversations",
        "/v1/videos/v_1",
    ],
)
async def test_routes_that_administer_are_never_relayed(mock: MockBackend, client: httpx.AsyncClient, path: str) -> None:
    for method in ("POST", "GET", "DELETE"):
        body = b'{"model":"mock-model","lora_name":"a"}' if method == "POST" else b""
        answer = await client.request(method, path, params={"model": "mock-model"}, content=body, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "caller_not_found")
    assert mock.requests == []
