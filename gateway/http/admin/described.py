"""What the OpenAPI document says of `/admin/config` and `/admin/audit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.http.admin.asked import MOST, USUAL
from gateway.http.schema import CONFIG, ERRORS
from gateway.http.shapes import ENVELOPE, INTEGER, NUMBER, STRING, described, header, nullable, parameter, shape

Responses = Mapping[int | str, Mapping[str, Any]]

ETAG: Final[Mapping[str, Any]] = {"ETag": header("The hash of the configuration in use, in double quotes.")}
_HASH: Final[Mapping[str, Any]] = {"type": "string", "description": "SHA-256 digest of what the configuration means."}
_PROBLEM: Final = shape(
    {
        "line": {**INTEGER, "description": "From 1; 0: the file has no such place."},
        "column": INTEGER,
        "path": {**STRING, "description": "Of keys, as `backends.gpu-a.url`."},
        "message": STRING,
        "severity": {"enum": ["error", "warning"]},
    }
)
_PROBLEMS: Final[Mapping[str, Any]] = {"type": "array", "items": _PROBLEM}
_WARNINGS: Final[Mapping[str, Any]] = {**_PROBLEMS, "description": "What most likely is a mistake."}
_DIFF: Final[Mapping[str, Any]] = {**STRING, "description": "Unified, secrets masked; empty: the same text."}
_VERSION: Final = nullable(INTEGER, "Its number; null: the database has not given it one yet.")
_SOURCE: Final[Mapping[str, Any]] = {
    "enum": ["database", "memory"],
    "description": "memory: only what this process knows since its start, for there is no database, or it does not answer.",
}
_NEXT: Final = nullable(STRING, "`cursor` of the next page; null: there is none.")
_LIMIT: Final = parameter("limit", "query", {**INTEGER, "minimum": 1, "maximum": MOST, "default": USUAL}, "Entries on a page.")


def _status(*more: tuple[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A configuration's answer, with these properties as well."""
    plain = CONFIG[200]["content"]["application/json"]["schema"]
    return shape({**plain["properties"], "version": _VERSION, **dict(more)})


def _with_etag(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return described(text, schema, ETAG)


_CONFIG: Final = _with_etag("The configuration in use", _status())
_REFUSED: Final = described(
    "Nothing is changed: `problems` has everything that is wrong with the configuration, if that is why",
    {**ENVELOPE, "properties": {**ENVELOPE["properties"], "problems": _PROBLEMS}},
)

SHOW: Responses = {**ERRORS, 200: _CONFIG}
RELOAD: Responses = {**SHOW, 400: described("The old configuration stays; why", ENVELOPE)}
SOURCE: Responses = {
    **ERRORS,
    200: {
        "description": "YAML, as the file has it, with `***` for secrets in plain text",
        "content": {"application/yaml": {"schema": {"type": "object"}}},
        "headers": ETAG,
    },
}

_CHANGE: Responses = {
    **ERRORS,
    400: _REFUSED,
    409: described("The file cannot be written; configuration is kept elsewhere", ENVELOPE),
    412: described("Another configuration runs, or the file was changed since it was taken up", ENVELOPE),
    413: described("The body is too large", ENVELOPE),
    428: described("There is no `If-Match`", ENVELOPE),
}
CHANGE_ERRORS: Responses = {status: _CHANGE[status] for status in (400, 409, 412, 413, 428)}
CHANGED: Final[Mapping[str, Any]] = {"warnings": _WARNINGS, "diff": _DIFF}
"""What is told of every change of the configuration."""
_TAKEN: Final = _status(*CHANGED.items())
_LOOKED_AT: Final = shape(
    {
        "object": {"const": "config.check"},
        "hash": _HASH,
        "running": {**_HASH, "description": "Hash of what runs."},
        "warnings": _WARNINGS,
        "diff": _DIFF,
    }
)
PUT: Responses = {
    **_CHANGE,
    200: _with_etag("It is in use; with `dry_run`: it could be", {"anyOf": [_TAKEN, _LOOKED_AT]}),
    415: described("The body is of a kind that is not taken", ENVELOPE),
}
_IF_MATCH: Final = parameter("If-Match", "header", STRING, "The `ETag` of what is to be replaced, or `*`: whatever runs.")
_EXAMPLE: Final = "version: 1\nbackends:\n  gpu-a: {url: http://10.0.0.5:8000, models: {qwen: qwen}}\n"
PUT_BODY: Final[Mapping[str, Any]] = {
    "parameters": [
        {**_IF_MATCH, "description": f"{_IF_MATCH['description']} Needed unless `dry_run`."},
        parameter("dry_run", "query", {"type": "boolean", "default": False}, "Only look at it: all problems, or the difference."),
    ],
    "requestBody": {
        "required": True,
        "description": "The whole file. JSON is taken too.",
        "content": {
            "application/yaml": {"schema": {"type": "object"}},
            "text/plain": {"schema": STRING, "example": _EXAMPLE},
            "application/json": {"schema": {"type": "object"}},
        },
    },
}
ROLLBACK: Responses = {
    **_CHANGE,
    200: _with_etag("It is in use again", _TAKEN),
    404: described("There is no such version, or its text was not kept", ENVELOPE),
}
ROLLBACK_BODY: Final[Mapping[str, Any]] = {
    "parameters": [_IF_MATCH],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": shape({"version": {**INTEGER, "minimum": 1}}), "example": {"version": 3}}},
    },
}

_LISTED: Final[Mapping[str, Any]] = {
    "object": {"const": "config.version"},
    "version": {**INTEGER, "description": "1, 2, ... in the order in which they first ran."},
    "hash": _HASH,
    "created": {**NUMBER, "description": "When it first ran, seconds since 1970."},
    "by_key": nullable(STRING, "Name of the key that brought it; null: it stood in the file."),
    "running": {"type": "boolean"},
}
VERSIONS: Responses = {
    **ERRORS,
    200: described(
        "The newest first",
        shape({"object": {"const": "list"}, "data": {"type": "array", "items": shape(_LISTED)}, "next": _NEXT, "source": _SOURCE}),
    ),
    400: described("A parameter that cannot be", ENVELOPE),
}
VERSIONS_QUERY: Final[Mapping[str, Any]] = {"parameters": [_LIMIT, parameter("cursor", "query", STRING, "`next` of the page before.")]}
VERSION: Responses = {
    **ERRORS,
    200: described("The version", shape({**_LISTED, "text": nullable(STRING, "YAML; null: it held secrets and was not kept.")})),
    404: described("There is no such version", ENVELOPE),
}
_NUMBER: Final[Mapping[str, Any]] = {**INTEGER, "minimum": 1}
VERSION_PATH: Final[Mapping[str, Any]] = {"parameters": [parameter("version", "path", _NUMBER, "Its number.")]}
DIFF: Responses = {
    **ERRORS,
    200: described(
        "The difference",
        shape({"object": {"const": "config.diff"}, "from": INTEGER, "to": nullable(INTEGER, "null: what runs."), "diff": _DIFF}),
    ),
    400: described("A parameter that cannot be", ENVELOPE),
    404: described("There is no such version, or its text was not kept", ENVELOPE),
}
DIFF_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        parameter("from", "query", _NUMBER, "A version.", required=True),
        parameter("to", "query", _NUMBER, "Another one. Default: what runs."),
    ]
}

_ENTRY: Final = shape(
    {
        "object": {"const": "audit.entry"},
        "id": STRING,
        "created": {**NUMBER, "description": "Seconds since 1970."},
        "key": {**STRING, "description": "Name of the key that did it."},
        "action": {**STRING, "description": "`config.put`, `config.rollback`, `config.reload`, `backend.drain`, ..."},
        "target": {**STRING, "description": "What it was done to."},
        "before_hash": nullable(STRING, "Digest of the target before."),
        "after_hash": nullable(STRING, "Digest of the target after."),
        "request_id": nullable(STRING, "Of the request that did it."),
        "detail": {"type": "object", "description": "Names and numbers; no secret, no text."},
    }
)
AUDIT: Responses = {
    **ERRORS,
    200: described(
        "The newest first",
        shape({"object": {"const": "list"}, "data": {"type": "array", "items": _ENTRY}, "next": _NEXT, "source": _SOURCE}),
    ),
    400: described("A parameter that cannot be", ENVELOPE),
}
AUDIT_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        _LIMIT,
        parameter("cursor", "query", STRING, "`next` of the page before."),
        parameter("action", "query", STRING, "Only these."),
        parameter("key", "query", STRING, "Only what this key did."),
        parameter("since", "query", STRING, "Only what was done then or later: seconds since 1970, or a time with its zone."),
    ]
}
