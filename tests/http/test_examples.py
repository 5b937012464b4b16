from __future__ import annotations

from typing import Any

import pytest

from gateway.http.examples import body_example, curl, example


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "string"}, "..."),
        ({"type": ["integer", "null"]}, 1),
        ({"type": "integer", "minimum": 3.0}, 3),
        ({"const": "list"}, "list"),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "string", "examples": ["auto"]}, "auto"),
        ({"properties": {"a": {"type": "boolean"}, "b": {}, "c": {"examples": [2]}}, "required": ["a"]}, {"a": True, "c": 2}),
        ({"properties": {"a": {"enum": ["x"]}, "b": {}}}, {"a": "x"}),
        ({"type": "array"}, []),
        ({"type": "object"}, {}),
    ],
)
def test_a_value(schema: dict[str, Any], found: object) -> None:
    assert example(schema) == found


def test_a_body() -> None:
    assert body_example({"schema": {"properties": {"a": {"const": 1}}}}) == '{\n  "a": 1\n}'
    assert body_example({"schema": {"type": "string"}, "example": "a: 1\n"}) == "a: 1\n"
    assert body_example({"schema": {"type": "string"}}) is None


def test_a_line_for_a_shell() -> None:
    operation = {
        "parameters": [
            {"name": "from", "in": "query", "required": True, "schema": {"type": "integer", "minimum": 1}},
            {"name": "to", "in": "query", "schema": {"type": "integer"}},
            {"name": "If-Match", "in": "header", "schema": {"type": "string"}},
        ],
        "requestBody": {"content": {"application/json": {"example": {"it's": 1}}}},
    }

    assert curl("/x", "post", operation) == (
        'curl -sS -X POST \\\n  "$URL/x?from=1" \\\n  -H "Authorization: Bearer $KEY" \\\n  -H \'If-Match: "..."\' \\\n'
        "  -H 'Content-Type: application/json' \\\n  -d '{\"it'\"'\"'s\": 1}'"
    )


def test_a_file_is_sent_as_it_is() -> None:
    operation = {"requestBody": {"content": {"application/yaml": {"schema": {"type": "string"}, "example": "a: 1"}}}}

    assert curl("/x", "put", operation).endswith("-H 'Content-Type: application/yaml' \\\n  --data-binary @FILE")


def test_nobody_s_key_is_asked_for_what_is_open() -> None:
    assert curl("/health", "get", {"security": []}) == 'curl -sS \\\n  "$URL/health"'
