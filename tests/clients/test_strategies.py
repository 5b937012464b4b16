"""The stream of a plan with a strategy, as the official SDKs read it: a heartbeat while candidates run, then the winner's own message."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.mock import Behaviour, MockBackend
from gateway.mock.behaviour import ToolCall
from tests.support.asking import CHAT
from tests.support.running import KEY, Running, config_for, running

LONG = "It is 4, for two and two are four.\n  Grüße, 你好 🙂. " * 30
CALLS = (ToolCall("weather", '{"city": "Rome"}', id="call_1"), ToolCall("clock", '{"zone":"CET"}', id="call_2"))
WINNERS: Mapping[str, Behaviour] = {
    "long": Behaviour(text=LONG, delay_headers_s=0.3),
    "tools": Behaviour(tool_calls=CALLS, delay_headers_s=0.3),
    "empty": Behaviour(text="", delay_headers_s=0.3),
    "thinking": Behaviour(text="It is 4", reasoning="Two and two. ", delay_headers_s=0.3),
}


def tool(name: str, argument: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument], "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}


BODY: dict[str, Any] = {
    "model": "best",
    "messages": [{"role": "user", "content": "What is 2 + 2?"}],
    "stream_options": {"include_usage": True},
}
# What else may stand in a stream, before the answer and at its end.
ALL: dict[str, Any] = {"trilemma": {"include": ["progress", "decision", "candidates"]}}
TOOLS: dict[str, Any] = {"tools": [tool("weather", "city"), tool("clock", "zone")]}


@dataclass
class Read:
    """What a helper makes of a stream. calls: id, name, arguments."""

    role: str
    content: str | None
    deltas: str
    finish: str
    calls: list[tuple[str, str, str]]
    completion_tokens: int


Reader = Callable[[Running, dict[str, Any]], Awaitable[Read]]


def read(answer: Mapping[str, Any], deltas: list[str]) -> Read:
    (choice,) = answer["choices"]
    message = choice["message"]
    calls = [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in message.get("tool_calls") or ()]
    return Read(
        message["role"], message.get("content"), "".join(deltas), choice["finish_reason"], calls, answer["usage"]["completion_tokens"]
    )


async def python(run: Running, body: dict[str, Any]) -> Read:
    def asked() -> Read:
        with (
            openai.OpenAI(base_url=f"{run.url}/v1", api_key=KEY, max_retries=0, timeout=30) as client,
            client.chat.completions.stream(**body, extra_body=ALL) as events,
        ):
            deltas = [event.delta for event in events if event.type == "content.delta"]
            return read(events.get_final_completion().to_dict(), deltas)

    return await asyncio.to_thread(asked)


async def python_async(run: Running, body: dict[str, Any]) -> Read:
    async with (
        openai.AsyncOpenAI(base_url=f"{run.url}/v1", api_key=KEY, max_retries=0, timeout=30) as client,
        client.chat.completions.stream(**body, extra_body=ALL) as events,
    ):
        deltas = [event.delta async for event in events if event.type == "content.delta"]
        return read((await events.get_final_completion()).to_dict(), deltas)


@pytest.fixture(params=["python", "async python", "node"])
def reader(request: pytest.FixtureRequest) -> Reader:
    """An SDK's stream helper."""
    if request.param != "node":
        return python if request.param == "python" else python_async
    folder: Path = request.getfixturevalue("node_folder")

    async def node(run: Running, body: dict[str, Any]) -> Read:
        told = json.dumps({"baseURL": f"{run.url}/v1", "apiKey": KEY, "body": body | ALL, "abortAfter": None})
        command = ["node", "ask.mjs", told]
        ran = await asyncio.to_thread(subprocess.run, command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr
        seen = json.loads(ran.stdout)
        assert seen["error"] is None
        assert seen["usage"]["total_tokens"] == seen["completion"]["usage"]["total_tokens"]
        return read(seen["completion"], seen["deltas"])

    return node


@pytest.fixture
async def engine() -> AsyncIterator[MockBackend]:
    async with MockBackend(["m"]) as found:
        yield found


@pytest.fixture
async def run(engine: MockBackend, tmp_path: Path) -> AsyncIterator[Running]:
    """A gateway over the mock whose model `best` is the best of three, with a heartbeat in each fiftieth of a second."""
    config = config_for(
        {"e": {"url": engine.url, "models": {"m": "m"}}},
        strategies={"best": {"type": "best_of_n", "params": {"n": 3, "select": "shortest"}}},
        virtual_models={"best": {"policy": "fixed", "plans": {"p": {"model": "m", "strategy": "best"}}}},
        policies={"fixed": {"type": "fixed"}},
        server={"heartbeat_s": 0.02},
    )
    async with running(config, tmp_path) as found:
        yield found


@pytest.mark.parametrize("said", WINNERS)
async def test_a_helper_reads_the_winner(run: Running, engine: MockBackend, reader: Reader, said: str) -> None:
    behaviour, body = WINNERS[said], BODY | (TOOLS if said == "tools" else {})
    engine.script(default=behaviour)
    async with run.client() as client:
        one = (await client.post(CHAT, json=body)).json()["choices"][0]  # what a candidate says, whoever wins
        raw = (await client.post(CHAT, json=body | {"stream": True})).content
    assert raw.startswith(b": \n"), "there is a heartbeat to be read"

    found = await reader(run, body)

    message = one["message"]
    calls = [(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in message.get("tool_calls") or ()]
    assert (found.role, found.finish) == ("assistant", one["finish_reason"])
    assert (found.content or "", found.deltas) == (behaviour.text or "", behaviour.text or "")
    assert found.calls == calls
    assert len(calls) == (2 if said == "tools" else 0)
    (usage,) = {sum(call.usage.completion for call in each.calls if call.usage is not None) for each in run.settled}
    assert found.completion_tokens == usage
