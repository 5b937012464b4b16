"""JSON schemas for the OpenAPI document, and the words of it that recur."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

STRING: Final[Mapping[str, Any]] = {"type": "string"}
INTEGER: Final[Mapping[str, Any]] = {"type": "integer"}
NUMBER: Final[Mapping[str, Any]] = {"type": "number"}
STRINGS: Final[Mapping[str, Any]] = {"type": "array", "items": STRING}


def shape(properties: Mapping[str, Any], *, optional: tuple[str, ...] = (), more: bool = False) -> dict[str, Any]:
    """An object with these properties. more: whether it may have others."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


def nullable(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """The same or null, described."""
    return {**schema, "type": [schema["type"], "null"], "description": text}


def described(text: str, schema: Mapping[str, Any], headers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A response whose body is JSON."""
    found = {"description": text, "content": {"application/json": {"schema": schema}}}
    return found if headers is None else found | {"headers": headers}


def header(text: str, schema: Mapping[str, Any] = STRING, *, required: bool = True) -> dict[str, Any]:
    """A response's header."""
    return {"description": text, "schema": schema, "required": required}


def parameter(name: str, where: str, schema: Mapping[str, Any], text: str, *, required: bool = False) -> dict[str, Any]:
    """A parameter of a request; where: path, query or header."""
    return {"name": name, "in": where, "required": required or where == "path", "schema": schema, "description": text}


ENVELOPE: Final = shape(
    {
        "error": shape(
            {
                "message": STRING,
                "type": STRING,
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"], "description": "From a closed set."},
            }
        )
    }
)
"""OpenAI's, of every error."""
