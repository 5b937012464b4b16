"""JSON schemas in a reader's words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_BOUNDS: Final = (("minimum", "from"), ("maximum", "to"))


def kind(schema: Schema) -> str:
    """What a value is: `string`, `integer from 1 to 200`, `array of object`, `"list"`, `integer or null`."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(each) for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(each) for each in schema["anyOf"]))
    types = schema.get("type", "anything")
    names = [types] if isinstance(types, str) else list(types)
    words = [_array(schema) if name == "array" else name for name in names]
    bounds = " ".join(f"{word} {_number(schema[name])}" for name, word in _BOUNDS if name in schema)
    if bounds:
        words[0] += f" {bounds}"
    return " or ".join(words)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _array(schema: Schema) -> str:
    return f"array of {kind(schema['items'])}" if schema.get("items") else "array"


def fields(schema: Schema) -> list[tuple[str, str, str, str]]:
    """(name, kind, `yes` if it is always there, description) of every field of an object, those of objects in it behind their own."""
    return list(_fields(schema, ""))


def _fields(schema: Schema, before: str) -> Iterator[tuple[str, str, str, str]]:
    """Of one of several objects, the fields of all; `yes` if each has it."""
    objects = [each for each in schema.get("anyOf", [schema]) if "properties" in each]
    for name in dict.fromkeys(name for each in objects for name in each["properties"]):
        found = [each["properties"][name] for each in objects if name in each["properties"]]
        needed = "yes" if all(name in each.get("required", ()) for each in objects) else ""
        kinds = " or ".join(dict.fromkeys(kind(each) for each in found))
        yield f"{before}{name}", kinds, needed, found[0].get("description", "")
        yield from _inner(found[0], f"{before}{name}")


def _inner(schema: Schema, name: str) -> Iterator[tuple[str, str, str, str]]:
    yield from _fields(schema, f"{name}.")
    items = schema.get("items")
    if items:
        yield from _inner(items, f"{name}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        yield from _inner(values, f"{name}.*")
