"""Scripting the mock: in process, over HTTP, from a file and the command line."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.mock import Behaviour, MockBackend, Say, ToolCall
from gateway.mock.cli import main

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


async def say(client: httpx.AsyncClient, **extra: Any) -> str:
    answer = await client.post("/v1/chat/completions", json={**CHAT, **extra})
    return answer.json()["choices"][0]["message"]["content"]


async def test_behaviours_are_used_up_in_order_then_the_default(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(text="one"), Behaviour(text="two", times=2), default=Behaviour(text="rest"))
    assert [await say(client) for _ in range(5)] == ["one", "two", "two", "rest", "rest"]


async def test_a_behaviour_for_ever_hides_what_comes_after(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(text="always", times=0), Behaviour(text="never"))
    assert [await say(client) for _ in range(3)] == ["always"] * 3


async def test_probes_use_up_nothing_unless_named(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(text="mine"), Behaviour(path="/health", status=503))
    assert [(await client.get("/health")).status_code for _ in range(2)] == [503, 200]
    assert await say(client) == "mine"
    assert [request.path for request in mock.requests_to("/health")] == ["/health", "/health"]


async def test_choices_may_say_different_things(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(choices=(Say(text="a"), Say(tool_calls=(ToolCall("f", '{"x":1}', "call-1"),)))))
    choices = (await client.post("/v1/chat/completions", json={**CHAT, "n": 3})).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "tool_calls", "stop"]
    assert choices[1]["message"]["tool_calls"] == [{"id": "call-1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]
    assert choices[2]["message"]["content"] == "a"


async def usages(mock: MockBackend, client: httpx.AsyncClient, usage: Any, asked: bool) -> list[Any]:
    """What each event of a stream of one token says of usage; "-" where it says nothing."""
    mock.script(Behaviour(tokens=("a",), usage=usage))
    options = {"stream_options": {"include_usage": True}} if asked else {}
    answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": True, **options})
    found = [json.loads(line[6:]).get("usage", "-") for line in answer.text.split("\n\n") if line.startswith("data: {")]
    return [entry if not isinstance(entry, dict) else entry.get("completion_tokens", entry) for entry in found]


PROMPT = {"prompt_tokens": 9}  # <|im_start|>, user, newline, hi, <|im_end|>, newline, <|im_start|>, assistant, newline.


@pytest.mark.parametrize(
    ("usage", "asked", "expected"),
    [
        ("exact", False, ["-", "-", "-"]),
        ("exact", True, ["-", "-", "-", 1]),
        ("none", True, ["-", "-", "-"]),
        ("null", True, [None, None, None, None]),
        ("openai", True, [None, None, None, 1]),
        ("empty", True, [{}, {}, {}, {}]),
        ("partial", True, [PROMPT, PROMPT, PROMPT, PROMPT]),
        ("in_every_chunk", False, [0, 1, 1]),
        ("in_every_chunk", True, [0, 1, 1, 1]),
    ],
)
async def test_usage_variants_of_a_stream(
    mock: MockBackend, client: httpx.AsyncClient, usage: str, asked: bool, expected: list[Any]
) -> None:
    assert await usages(mock, client, usage, asked) == expected


async def test_usage_variants_of_a_whole_answer(mock: MockBackend, client: httpx.AsyncClient) -> None:
    found = {}
    for usage in ("none", "null", "empty", "partial"):
        mock.script(Behaviour(text="a", usage=usage))
        found[usage] = (await client.post("/v1/chat/completions", json=CHAT)).json().get("usage", "-")
    assert found == {"none": "-", "null": None, "empty": {}, "partial": PROMPT}


async def test_include_usage_may_be_refused(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(reject_include_usage=True, times=0))
    asked = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    refused = await client.post("/v1/chat/completions", json=asked)
    assert (refused.status_code, "stream_options" in refused.json()["error"]["message"]) == (400, True)
    assert (await client.post("/v1/chat/completions", json={**CHAT, "stream": True})).status_code == 200


async def test_stream_may_be_ignored(mock: MockBackend, client: httpx.AsyncClient) -> None:
    mock.script(Behaviour(text="whole", ignore_stream=True))
    assert await say(client, stream=True) == "whole"


@pytest.mark.parametrize(("value", "role"), [(True, "assistant"), ("", "")])
async def test_the_role_may_be_repeated(mock: MockBackend, client: httpx.AsyncClient, value: Any, role: str) -> None:
    mock.script(Behaviour(tokens=("a", "b"), role_every_chunk=value))
    answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in answer.text.split("\n\n")[1:4]]
    assert [(delta["role"], delta["content"]) for delta in deltas] == [(role, "a"), (role, "b"), (role, "")]


async def test_a_key_is_demanded_below_v1_only() -> None:
    async with MockBackend(key="k") as mock, httpx.AsyncClient(base_url=mock.url) as client:
        mock.script(Behaviour(text="in"))
        refused = await client.get("/v1/models", headers={"Authorization": "Bearer x"})
        assert (refused.status_code, refused.text) == (401, '{"error":"Unauthorized"}')
        assert (await client.get("/health")).status_code == 200
        client.headers["Authorization"] = "Bearer k"
        assert await say(client) == "in"


async def test_the_script_goes_over_http(client: httpx.AsyncClient) -> None:
    script = [{"text": "from afar", "usage": "null"}, {"raw": "SFRUUC8xLjEgMjA0IE5vIENvbnRlbnQNCg0K"}]
    assert (await client.post("/mock/script", json=script)).json() == {"queued": 2}
    assert await say(client) == "from afar"
    assert (await client.post("/v1/completions", json={"prompt": "x"})).status_code == 204
    seen = (await client.get("/mock/requests")).json()
    assert (seen["total"], seen["in_flight"], seen["aborted"]) == (2, 0, 0)
    first = seen["requests"][0]
    assert (first["target"], json.loads(first["body"]), first["answered"]) == ("/v1/chat/completions", CHAT, True)
    assert ["content-type", "application/json"] in [[name.lower(), value] for name, value in first["headers"]]
    await client.post("/mock/reset")
    assert (await client.get("/mock/requests")).json()["requests"] == []


@pytest.mark.parametrize("script", [b"{", b"{}", b'[{"txet":"a"}]', b'[{"usage":"most"}]', b'[{"split":0}]'])
async def test_a_wrong_script_is_refused_whole(client: httpx.AsyncClient, script: bytes) -> None:
    assert (await client.post("/mock/script", content=script)).status_code == 400
    assert (await say(client)).startswith("tok0")


async def test_waiting_in_vain_tells_the_state(mock: MockBackend, client: httpx.AsyncClient) -> None:
    await client.get("/health")
    with pytest.raises(AssertionError, match=r"'total': 1.*'/health'"):
        await mock.wait_for(lambda m: m.total == 2, within_s=0.01)


async def test_only_the_newest_requests_are_kept() -> None:
    async with MockBackend(keep=2) as mock, httpx.AsyncClient(base_url=mock.url) as client:
        for path in ("/a", "/b", "/c"):
            await client.get(path)
        assert ([request.path for request in mock.requests], mock.total) == (["/b", "/c"], 3)


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    code = "import sys; from gateway.mock.cli import main; sys.exit(main())"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *arguments, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(30):
            yield child, json.loads(await child.stdout.readline())["url"]
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_the_command_serves_a_script_and_ends_on_sigterm(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"text": "scripted"}, {"reset_after_events": 2, "cut_wait_s": 0.05}]')
    arguments = ("--model", "a", "--model", "b", "--script", str(script), "--max-model-len", "77", "--key", "k")
    async with process(*arguments) as (child, url):
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": "Bearer k"}) as client:
            models = (await client.get("/v1/models")).json()["data"]
            assert [(model["id"], model["max_model_len"]) for model in models] == [("a", 77), ("b", 77)]
            assert await say(client, model="b") == "scripted"
            with pytest.raises(httpx.ReadError):
                await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
        child.send_signal(signal.SIGTERM)
        assert await child.wait() == 0


def test_the_command_refuses_a_wrong_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"txet": "a"}]')
    with pytest.raises(SystemExit) as ended:
        main(["--script", str(script)])
    assert ended.value.code == 2
    assert "txet" in capsys.readouterr().err
