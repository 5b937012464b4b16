"""What the OpenAPI document says of `/admin/keys`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.http.admin.asked import MOST, USUAL
from gateway.http.schema import ERRORS
from gateway.http.shapes import ENVELOPE, INTEGER, NUMBER, STRING, STRINGS, described, nullable, parameter, shape

Responses = Mapping[int | str, Mapping[str, Any]]

_SCOPES: Final[Mapping[str, Any]] = {"type": "array", "items": {"enum": ["inference", "admin", "metrics"]}}
_PRIORITY: Final[Mapping[str, Any]] = {"enum": ["interactive", "batch"]}
_TAGS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": STRING}
_LIMITS: Final = shape(
    {
        "rpm": nullable({**INTEGER, "minimum": 1}, "Requests per minute."),
        "tpm": nullable({**INTEGER, "minimum": 1}, "Tokens per minute."),
        "concurrency": nullable({**INTEGER, "minimum": 1}, "Requests at once."),
    }
)
_KEY: Final = shape(
    {
        "object": {"const": "key"},
        "id": nullable(STRING, "null: it stands in the configuration, and can only be changed there."),
        "name": STRING,
        "scopes": _SCOPES,
        "tenant": STRING,
        "models": {**STRINGS, "description": "Names and patterns."},
        "tags": _TAGS,
        "priority": _PRIORITY,
        "limits": {**_LIMITS, "description": "Its own; null: as `limits.key` of the configuration says."},
        "expires": nullable(NUMBER, "Seconds since 1970; null: never."),
        "state": {"enum": ["good", "expired", "revoked"]},
        "created": nullable(NUMBER, "Seconds since 1970."),
        "revoked": nullable(NUMBER, "Seconds since 1970."),
    }
)
_NEW_KEY: Final = shape({**_KEY["properties"], "key": {**STRING, "description": "The key itself. It is shown here, and never again."}})
_AWAY: Final = described("There is no database, or it does not answer", ENVELOPE)
_OF_KEYS: Responses = {**ERRORS, 503: _AWAY}
_OF_ONE: Responses = {**_OF_KEYS, 404: described("There is no such key in the database", ENVELOPE)}
_BAD: Final[Mapping[int | str, Mapping[str, Any]]] = {
    400: described("A property cannot be so", ENVELOPE),
    413: described("The body is too large", ENVELOPE),
}

LIST: Responses = {
    **_OF_KEYS,
    400: described("A parameter cannot be so", ENVELOPE),
    200: described(
        "The database's keys, the newest first, those that were revoked too",
        shape(
            {
                "object": {"const": "list"},
                "data": {"type": "array", "items": _KEY},
                "next": nullable(STRING, "`cursor` of the next page; null: there is none."),
                "configured": {"type": "array", "items": _KEY, "description": "Those of the configuration."},
            }
        ),
    ),
}
LIST_QUERY: Final[Mapping[str, Any]] = {
    "parameters": [
        parameter("limit", "query", {**INTEGER, "minimum": 1, "maximum": MOST, "default": USUAL}, "Keys on a page."),
        parameter("cursor", "query", STRING, "`next` of the page before."),
    ]
}
ONE: Responses = {**_OF_ONE, 200: described("The key", _KEY)}
NEW: Responses = {
    **_OF_KEYS,
    **_BAD,
    201: described("It is good from now on here, and within two seconds in every process", _NEW_KEY),
    409: described("There is a key of that name already, or was one", ENVELOPE),
}
CHANGED: Responses = {**_OF_ONE, **_BAD, 200: described("The key as it is now", _KEY)}
REVOKED: Responses = {**_OF_ONE, 200: described("It is no good any more", _KEY)}

_EXPIRES: Final[Mapping[str, Any]] = {
    "type": ["string", "number", "null"],
    "description": "A time with its zone, a day, at whose end in UTC, or seconds since 1970; null: never.",
    "examples": ["2030-12-31"],
}
_PROPERTIES: Final[Mapping[str, Any]] = {
    "scopes": _SCOPES,
    "tenant": {**STRING, "minLength": 1, "maxLength": 100},
    "models": STRINGS,
    "tags": {**_TAGS, "maxProperties": 16},
    "priority": _PRIORITY,
    "limits": {**_LIMITS, "required": []},
    "expires": _EXPIRES,
}
_NAME: Final[Mapping[str, Any]] = {**STRING, "minLength": 1, "maxLength": 100, "description": "What rows, logs and metrics call it."}
NEW_BODY: Final[Mapping[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": shape({"name": {**_NAME, "examples": ["web"]}, **_PROPERTIES}, optional=tuple(_PROPERTIES)),
            }
        },
    }
}
KEY_ID: Final = parameter("key_id", "path", STRING, "Its `id`.")
CHANGE_BODY: Final[Mapping[str, Any]] = {
    "parameters": [KEY_ID],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {**shape(_PROPERTIES, optional=tuple(_PROPERTIES)), "minProperties": 1}}},
    },
}
