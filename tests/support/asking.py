"""Asking: bodies, the same question put to a backend directly and through the gateway, streams taken apart."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import httpx

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


def data(stream: bytes) -> list[bytes]:
    """The data of every event, by the standard's own words: lines, fields, and an empty line that dispatches."""
    found: list[bytes] = []
    lines: list[bytes] = []
    for line in re.split(rb"\r\n|\n|\r", stream):
        if line == b"" and lines:
            found.append(b"\n".join(lines))
            lines = []
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return found


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
