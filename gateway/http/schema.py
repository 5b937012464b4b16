"""What the OpenAPI document says of the inference endpoints: the fields the gateway reads; all others pass through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TRILEMMA: Mapping[str, Any] = {
    "type": ["object", "null"],
    "additionalProperties": False,
    "description": "Settings of the gateway itself; removed before anything is forwarded.",
    "properties": {
        "policy": {"type": ["string", "null"]},
        "strategy": {"type": ["string", "null"]},
        "deadline_ms": {"type": ["integer", "null"], "minimum": 1, "maximum": 86_400_000},
        "session_id": {"type": ["string", "null"]},
        "tags": {"type": ["object", "null"], "additionalProperties": {"type": "string"}, "maxProperties": 16},
    },
}

_COMMON: Mapping[str, Any] = {
    "model": {"type": "string", "minLength": 1, "description": "A real model, an alias or a virtual model."},
    "stream": {"type": ["boolean", "null"]},
    "stream_options": {
        "type": ["object", "null"],
        "properties": {"include_usage": {"type": ["boolean", "null"]}},
        "additionalProperties": True,
    },
    "n": {"type": ["integer", "null"], "minimum": 1},
    "max_tokens": {"type": ["integer", "null"], "minimum": -1, "maximum": 2**31 - 1},
    "trilemma": _TRILEMMA,
}

_CHAT: Mapping[str, Any] = {
    **_COMMON,
    "messages": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
    "max_completion_tokens": {"type": ["integer", "null"], "minimum": -1, "maximum": 2**31 - 1},
}
_COMPLETION: Mapping[str, Any] = {**_COMMON, "prompt": {}}
_EMBEDDING: Mapping[str, Any] = {"model": _COMMON["model"], "input": {}, "trilemma": _TRILEMMA}

INFERENCE: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("/v1/chat/completions", "Chat completion, streamed or not", _CHAT),
    ("/v1/completions", "Text completion, streamed or not", _COMPLETION),
    ("/v1/embeddings", "Embeddings", _EMBEDDING),
)


def body(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The request body of an inference endpoint, for the OpenAPI document."""
    content = {"type": "object", "properties": properties, "required": ["model"], "additionalProperties": True}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": content}}},
        "security": [{"bearer": []}],
    }


_ERROR: Mapping[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}


def _described(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": _ERROR}}}


ERRORS: Mapping[int | str, dict[str, Any]] = {
    401: _described("No key, or a wrong one"),
    403: _described("The key may not do this"),
    404: _described("Unknown model"),
}

ANSWERS: Mapping[int | str, dict[str, Any]] = {
    **ERRORS,
    200: {
        "description": "What the backend answered",
        "content": {"application/json": {}, "text/event-stream": {}},
    },
    400: _described("Bad input, found here or by the backend"),
    413: _described("The body is too large"),
    422: _described("The backend refused the input"),
    429: _described("A limit"),
    500: _described("The backend or the gateway failed"),
    501: _described("The backend does not do this"),
    502: _described("The backend broke, or could not be reached"),
    503: _described("No backend is live"),
    504: _described("A deadline or time-out passed"),
}
