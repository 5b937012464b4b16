"""Examples of requests, from what the OpenAPI document says of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_PLAIN: Final[Mapping[str, Any]] = {"string": "...", "integer": 1, "number": 1.0, "boolean": True, "array": [], "null": None}


def body_example(content: Schema) -> str | None:
    """A body as text, if it can be said what one looks like. content: a media type object."""
    if "example" in content:
        found = content["example"]
        return found if isinstance(found, str) else json.dumps(found, indent=2)
    schema = content.get("schema", {})
    return json.dumps(example(schema), indent=2) if schema.get("properties") else None


def example(schema: Schema) -> Any:
    """A value: what the schema gives as one, else the least that fits. Of fields, the needed ones and those with an example."""
    if "examples" in schema:
        return schema["examples"][0]
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        known = schema["properties"]
        wanted = [name for name in known if name in schema.get("required", ()) or "examples" in known[name]]
        return {name: example(known[name]) for name in wanted or list(known)[:1]}
    if "minimum" in schema:
        least = schema["minimum"]
        return int(least) if schema.get("type") == "integer" else least
    kind = schema.get("type", "string")
    return _PLAIN.get(kind if isinstance(kind, str) else kind[0], {})


def curl(path: str, method: str, operation: Schema) -> str:
    """A line for a shell."""
    query = "&".join(
        f"{each['name']}={example(each['schema'])}"
        for each in operation.get("parameters", ())
        if each["in"] == "query" and each.get("required")
    )
    words = ["curl", "-sS"] + ([] if method == "get" else ["-X", method.upper()])
    parts = [shlex.join(words), f'"$URL{path}{"?" if query else ""}{query}"']
    if operation.get("security") != []:
        parts.append('-H "Authorization: Bearer $KEY"')
    parts += [f"-H '{each['name']}: \"...\"'" for each in operation.get("parameters", ()) if each["in"] == "header"]
    if body := operation.get("requestBody"):
        media, content = next(iter(body["content"].items()))
        parts.append(f"-H {shlex.quote(f'Content-Type: {media}')}")
        is_json = media == "application/json"
        compact = json.dumps(json.loads(body_example(content) or "{}")) if is_json else None
        parts.append("--data-binary @FILE" if compact is None else f"-d {shlex.quote(compact)}")
    return " \\\n  ".join(parts)
