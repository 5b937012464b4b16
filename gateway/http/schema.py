"""What the OpenAPI document says: of bodies, the fields that the gateway reads, for all others pass; of answers, what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Security
from fastapi.security import HTTPBearer

from gateway.http.shapes import ENVELOPE as _ERROR
from gateway.http.shapes import INTEGER as _INTEGER
from gateway.http.shapes import STRING as _STRING
from gateway.http.shapes import STRINGS as _STRINGS
from gateway.http.shapes import described as _described
from gateway.http.shapes import shape as _object

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
        "max_cost": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1_000_000, "description": "USD."},
        "budget_tokens": {"type": ["integer", "null"], "minimum": 1, "maximum": 2**31 - 1},
        "preference": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {name: {"type": "number", "minimum": 0} for name in ("quality", "cost", "latency")},
        },
        "reasoning": {"enum": ["off", "low", "medium", "high", None]},
        "session_id": {"type": ["string", "null"]},
        "tags": {"type": ["object", "null"], "additionalProperties": {"type": "string"}, "maxProperties": 16},
        "learn": {"type": ["boolean", "null"], "description": "false: no policy may learn from it."},
        "dry_run": {"type": ["boolean", "null"], "description": "Decide, and answer with that: see /v1/route."},
        "include": {"type": ["array", "null"], "items": {"enum": ["decision", "candidates", "progress"]}},
    },
}

_COMMON: Mapping[str, Any] = {
    "model": {"type": "string", "minLength": 1, "description": "A real model, an alias or a virtual model.", "examples": ["auto"]},
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

CHAT: Mapping[str, Any] = {
    **_COMMON,
    "messages": {
        "type": "array",
        "items": {"type": "object", "additionalProperties": True},
        "examples": [[{"role": "user", "content": "Hello!"}]],
    },
    "max_completion_tokens": {"type": ["integer", "null"], "minimum": -1, "maximum": 2**31 - 1},
}
_COMPLETION: Mapping[str, Any] = {**_COMMON, "prompt": {"examples": ["Once upon a time"]}}
_EMBEDDING: Mapping[str, Any] = {"model": _COMMON["model"], "input": {"examples": ["a cat"]}, "trilemma": _TRILEMMA}

INFERENCE: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("/v1/chat/completions", "Chat completion, streamed or not", CHAT),
    ("/v1/completions", "Text completion, streamed or not", _COMPLETION),
    ("/v1/embeddings", "Embeddings", _EMBEDDING),
)


def body(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The request body of an inference endpoint."""
    content = {"type": "object", "properties": properties, "required": ["model"], "additionalProperties": True}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": content}}}}


# A backend's own error passes as it is, if it is a JSON object.
_ANY_ERROR: Mapping[str, Any] = {"anyOf": [_ERROR, {"type": "object"}]}

_ALWAYS: Mapping[str, Any] = {
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
_RATES: Mapping[str, Any] = {
    f"x-ratelimit-{what}-{of}": {"description": f"{text} Only if {of} are limited.", "schema": kind, "required": False}
    for of in ("requests", "tokens")
    for what, text, kind in (
        ("limit", f"{of.capitalize()} per minute, of the tightest limit of the key and its tenant.", _INTEGER),
        ("remaining", "What is left of it.", _INTEGER),
        ("reset", "Until all of it is left, as `1m0s` or `120ms`.", _STRING),
    )
}
_HEADERS: Mapping[str, Any] = {**_ALWAYS, **_RATES}

Responses = Mapping[int | str, Mapping[str, Any]]


def documented(responses: Responses) -> dict[int | str, dict[str, Any]]:
    """Responses as FastAPI wants them: its own to change."""
    return {status: dict(each) for status, each in responses.items()}


ERRORS: Responses = {
    401: _described("No key, or a wrong one", _ERROR),
    403: _described("The key may not do this", _ERROR),
    429: _described("Too many wrong keys from this address, or a limit", _ERROR),
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
    429: "A limit: of the key, of its tenant, of wrong keys from one address, or the backend's",
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

METRICS: Responses = {
    **ERRORS,
    200: {"description": "Prometheus' text format, or OpenMetrics", "content": {"text/plain": {}, "application/openmetrics-text": {}}},
    404: _described("The configuration switches it off", _ERROR),
}

_CONFIG = _object(
    {
        "object": {"const": "config"},
        "source": _STRING,
        "hash": _STRING,
        "loaded_at": {"type": "number", "description": "Seconds since 1970."},
        "last_error": {"type": ["array", "null"], "items": _STRING, "description": "The problems of a reload that failed since."},
        "storage": {
            "anyOf": [
                _object({"error": {"type": ["string", "null"]}, "waiting": _INTEGER, "dropped": _INTEGER}),
                {"type": "null"},
            ],
            "description": "Why decisions do not reach the database now, and how many wait for it; null: they go nowhere.",
        },
    }
)
CONFIG: Responses = {**ERRORS, 200: _described("The configuration in use", _CONFIG)}
RELOAD: Responses = {
    **ERRORS,
    200: _described("The new configuration is in use", _CONFIG),
    400: _described("The old configuration stays; why", _ERROR),
}
# What an operator may say of a backend.
STATES: tuple[str, ...] = ("serving", "draining", "disabled")
LONGEST_WAIT_S: Final = 300
_BACKEND = _object(
    {
        "name": _STRING,
        "engine": _STRING,
        "url": _STRING,
        "models": {"type": "object", "additionalProperties": _STRING, "description": "Public name -> the engine's own."},
        "changed": {
            "type": "object",
            "additionalProperties": _STRING,
            "description": "Models for which another one than at first answers there; and how that shows.",
        },
        "left_out": {
            "type": "object",
            "additionalProperties": _STRING,
            "description": "Those of them that it gets no calls for.",
        },
        "weight": {"type": "number"},
        "state": {"enum": [*STATES, "off"], "description": "off: `enabled: false` in the configuration."},
        "in_flight": {**_INTEGER, "description": "Our calls that run there, of all workers."},
        "answered": {"type": "boolean", "description": "Whether it has ever answered."},
        "breaker": _object({"state": {"enum": ["closed", "open", "half_open"]}, "wait_s": {"type": "number"}}),
        "probe": _object(
            {
                "age_s": {"type": ["number", "null"], "description": "Since the last one ended."},
                "error": {"type": ["string", "null"], "description": "What it found amiss."},
            }
        ),
        "managed": {"type": ["object", "null"], "description": "An engine of the gateway's own, as its supervisor sees it."},
        "drained": {"type": "boolean", "description": "In the answer to a change: it gets no calls, and none runs there any more."},
        "unheard": {
            "type": "array",
            "items": _INTEGER,
            "description": "Workers that did not answer: their calls are not counted, and they may not know of a change. 0: their parent.",
        },
    },
    optional=("drained", "unheard"),
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
BACKEND: Responses = {
    **ERRORS,
    200: _described("The backend", _BACKEND),
    404: _described("Unknown backend", _ERROR),
}
BACKEND_CHANGED: Responses = {
    **BACKEND,
    400: _described("What is asked for cannot be", _ERROR),
    413: _described("The body is too large", _ERROR),
}
BACKEND_NAME: Mapping[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": _STRING,
    "description": "A name, which may hold slashes.",
}
BACKEND_CHANGE: Mapping[str, Any] = {
    "parameters": [
        BACKEND_NAME,
        {
            "name": "wait_s",
            "in": "query",
            "schema": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S},
            "description": "With `draining` or `disabled`: answer when none of our calls runs there any more, or after so long.",
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    **_object(
                        {
                            "state": {"enum": STATES, "description": "draining: no new calls. disabled: nor probes. serving: as before."},
                            "accept": {"const": True, "description": "The models that it has now are those that it should have."},
                        },
                        optional=("state", "accept"),
                    ),
                    "minProperties": 1,
                }
            }
        },
    },
}
