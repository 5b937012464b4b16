"""The smallest instance of a JSON schema, for tool arguments and structured outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SIMPLE: Mapping[str, Any] = {"string": "", "boolean": False, "null": None, "array": [], "object": {}}


def instance(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A value that fits: required properties, least lengths and numbers. Knows const, enum, $ref, anyOf, type."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > 32:
        return {}
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if isinstance(schema.get("$ref"), str):
        target = root
        for key in schema["$ref"].lstrip("#/").split("/"):
            target = target.get(key, {}) if isinstance(target, dict) else {}
        return instance(target, root, depth + 1)
    for union in ("anyOf", "oneOf", "allOf"):
        if schema.get(union):
            return instance(schema[union][0], root, depth + 1)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: instance(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        return [instance(schema.get("items", {}), root, depth + 1) for _ in range(schema.get("minItems", 0))]
    if kind == "string":
        return "x" * schema.get("minLength", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    return _SIMPLE.get(kind, {})
