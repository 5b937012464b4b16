"""What the OpenAPI document says: of bodies, the fields that the gateway reads, for all others pass; of answers, what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Security
from fastapi.security import HTTPBearer

# Only tells the document of keys; they are checked by `routes.caller` and, for inference, by the core.
KEYED: Final = Security(HTTPBearer(scheme_name="bearer", auto_error=False, description="A key of this gateway."))
PUBLIC: Mapping[str, Any] = {"security": []}

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
    """The request body of an inference endpoint."""
    content = {"type": "object", "properties": properties, "required": ["model"], "additionalProperties": True}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": content}}}}


def _object(properties: Mapping[str, Any], *, optional: tuple[str, ...] = (), more: bool = False) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


def _described(text: str, schema: Mapping[str, Any], headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    described = {"description": text, "content": {"application/json": {"schema": schema}}}
    return described if headers is None else described | {"headers": headers}


_STRING: Mapping[str, Any] = {"type": "string"}
_INTEGER: Mapping[str, Any] = {"type": "integer"}
_STRINGS: Mapping[str, Any] = {"type": "array", "items": _STRING}

_ERROR = _object(
    {
        "error": _object(
            {
                "message": _STRING,
                "type": _STRING,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"], "description": "From a closed set."},
            }
        )
    }
)
# A backend's own error passes as it is, if it is a JSON object.
_ANY_ERROR: Mapping[str, Any] = {"anyOf": [_ERROR, {"type": "object"}]}

_HEADERS: Mapping[str, Any] = {
    name: {"description": text, "schema": kind, "required": name not in ("x-trilemma-model", "x-trilemma-attempts")}
    for name, text, kind in (
        ("x-request-id", "The caller's own, if it is a plain token.", _STRING),
        ("x-trilemma-decision-id", "Names what was decided for this request.", _STRING),
        ("x-trilemma-model", "The real model that served; empty: none did.", _STRING),
        ("x-trilemma-policy", "The policy that chose it, or `none`.", _STRING),
        ("x-trilemma-strategy", "How it was decoded.", _STRING),
        ("x-trilemma-attempts", "Requests to backends.", _INTEGER),
        ("x-trilemma-overhead-ms", "Time spent in the gateway itself.", {"type": "number"}),
    )
}

Responses = Mapping[int | str, Mapping[str, Any]]


def documented(responses: Responses) -> dict[int | str, dict[str, Any]]:
    """Responses as FastAPI wants them: its own to change."""
    return {status: dict(each) for status, each in responses.items()}


ERRORS: Responses = {
    401: _described("No key, or a wrong one", _ERROR),
    403: _described("The key may not do this", _ERROR),
}

_OWN_ERRORS: Mapping[int, str] = {
    401: "No key, or a wrong one",
    403: "The key may not do this, or not with this model",
    409: "The Idempotency-Key was used with another request",
    413: "The body is too large",
    415: "The body is compressed, or of a kind that is not taken",
    502: "The backend broke, or could not be reached",
    503: "The gateway is shutting down, or no backend is live",
    504: "A deadline or time-out passed",
}
_RELAYED_ERRORS: Mapping[int, str] = {
    400: "Bad input, found here or by the backend",
    404: "Unknown model",
    422: "The backend refused the input",
    429: "A limit",
    500: "The backend or the gateway failed",
    501: "The backend does not do this",
}

ANSWERS: Responses = {
    200: {
        "description": "What the backend answered",
        "content": {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        "headers": _HEADERS,
    },
    **{status: _described(text, _ERROR, _HEADERS) for status, text in _OWN_ERRORS.items()},
    **{status: _described(text, _ANY_ERROR, _HEADERS) for status, text in _RELAYED_ERRORS.items()},
}

_CARD = _object(
    {"id": _STRING, "object": {"const": "model"}, "created": {}, "owned_by": {}, "max_model_len": _INTEGER},
    optional=("max_model_len",),
    more=True,
)

MODEL: Responses = {
    **ERRORS,
    200: _described("The model's card, with whatever else its backend says", _CARD),
    404: _described("Unknown model", _ERROR),
}
MODEL_NAME: Mapping[str, Any] = {
    "parameters": [{"name": "model", "in": "path", "required": True, "schema": _STRING, "description": "A name, which may hold slashes."}]
}
MODELS: Responses = {
    **ERRORS,
    200: _described(
        "Real models first, then aliases and virtual models",
        _object({"object": {"const": "list"}, "data": {"type": "array", "items": _CARD}}),
    ),
}

HEALTH: Responses = {200: _described("It lives", _object({"status": {"const": "ok"}, "version": _STRING}))}
_READY = _object({"status": {"enum": ["ready", "waiting"]}, "reasons": _STRINGS, "degraded": _STRINGS})
READY: Responses = {
    200: _described("Every real model has a backend that answered", _READY),
    503: _described("Not yet, or no more; with the reasons", _READY),
}

_CONFIG = _object(
    {
        "object": {"const": "config"},
        "source": _STRING,
        "hash": _STRING,
        "loaded_at": {"type": "number", "description": "Seconds since 1970."},
        "last_error": {"type": ["array", "null"], "items": _STRING, "description": "The problems of a reload that failed since."},
    }
)
CONFIG: Responses = {**ERRORS, 200: _described("The configuration in use", _CONFIG)}
RELOAD: Responses = {
    **ERRORS,
    200: _described("The new configuration is in use", _CONFIG),
    400: _described("The old configuration stays; why", _ERROR),
}
_BACKEND = _object(
    {
        "name": _STRING,
        "engine": _STRING,
        "url": _STRING,
        "models": {"type": "object", "additionalProperties": _STRING},
        "in_flight": _INTEGER,
        "answered": {"type": "boolean"},
        "breaker": {"enum": ["closed", "open", "half_open"]},
        "managed": {"type": ["object", "null"], "description": "An engine of the gateway's own, as its supervisor sees it."},
    }
)
_SOURCES: Mapping[str, Any] = {
    "type": "object",
    "description": "How the sources of discovered backends do, by backend.",
    "additionalProperties": _object(
        {"replicas": _INTEGER, "last_error": {"type": ["string", "null"]}, "age_s": {"type": ["number", "null"]}}
    ),
}
BACKENDS: Responses = {
    **ERRORS,
    200: _described(
        "In configured order", _object({"object": {"const": "list"}, "data": {"type": "array", "items": _BACKEND}, "sources": _SOURCES})
    ),
}
