"""Asking: bodies, the same question put to a backend directly and through the gateway, streams taken apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from gateway.mock import Behaviour, MockBackend
from gateway.wire.sse import events_data

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "hi"}]
ALWAYS = (
    "x-request-id",
    "x-trilemma-decision-id",
    "x-trilemma-model",
    "x-trilemma-policy",
    "x-trilemma-strategy",
    "x-trilemma-attempts",
    "x-trilemma-overhead-ms",
)
"""The headers of every inference answer."""


def question(**extra: Any) -> dict[str, Any]:
    """A chat body for the mock's model."""
    return {"model": "mock-model", "messages": MESSAGES, **extra}


@dataclass
class Pair:
    """One question's two answers: from the backend itself, and from it through the gateway."""

    direct: httpx.Response
    relayed: httpx.Response


async def ask_both(
    mock: MockBackend,
    client: httpx.AsyncClient,
    behaviour: Behaviour,
    body: Mapping[str, Any],
    path: str = CHAT,
    *,
    direct: Mapping[str, Any] | None = None,
) -> Pair:
    """Puts `body` to the mock (`direct`, where it differs) and to the gateway; both are answered by `behaviour`."""
    mock.script(behaviour, behaviour)
    async with httpx.AsyncClient(timeout=30) as plain:
        first = await plain.post(mock.url + path, json=direct or body)
    return Pair(first, await client.post(path, json=body))


def data(stream: bytes) -> list[bytes]:
    """The data of every event."""
    return list(events_data(stream))


def chunks(stream: bytes) -> list[dict[str, Any]]:
    """The JSON of every event but `[DONE]`; anything else is a failure."""
    return [json.loads(each) for each in data(stream) if each != b"[DONE]"]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of an answer in OpenAI's envelope, whose shape is checked, as are the headers that every answer has."""
    body = response.json()
    assert set(body) == {"error"}, body
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}, error
    assert isinstance(error["message"], str) and isinstance(error["type"], str)
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["x-request-id"]
    return error
