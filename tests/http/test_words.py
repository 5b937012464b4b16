from __future__ import annotations

from typing import Any

import pytest

from gateway.http.words import fields, kind


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "anything"),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"type": "integer", "minimum": 1, "maximum": 200}, "integer from 1 to 200"),
        ({"type": "integer", "minimum": 1.0, "maximum": 86_400_000.0}, "integer from 1 to 86400000"),
        ({"type": ["number", "null"], "minimum": 0.5}, "number from 0.5 or null"),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        ({"type": ["array", "null"], "items": {"type": "string"}}, "array of string or null"),
        ({"type": "array"}, "array"),
        ({"const": "list"}, '"list"'),
        ({"const": True}, "true"),
        ({"enum": ["a", "b"]}, '"a" or "b"'),
        ({"anyOf": [{"type": "object"}, {"type": "null"}, {"type": "object"}]}, "object or null"),
    ],
)
def test_what_a_value_is(schema: dict[str, Any], words: str) -> None:
    assert kind(schema) == words


def test_fields_and_the_fields_in_them() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "A word."},
            "b": {"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]},
            "d": {"type": "array", "items": {"type": "object", "properties": {"e": {"type": "number"}}}},
            "f": {"type": "object", "additionalProperties": {"type": "object", "properties": {"g": {"const": 1}}}},
        },
        "required": ["a"],
    }

    assert fields(schema) == [
        ("a", "string", "yes", "A word."),
        ("b", "object", "", ""),
        ("b.c", "integer", "yes", ""),
        ("d", "array of object", "", ""),
        ("d[].e", "number", "", ""),
        ("f", "object", "", ""),
        ("f.*.g", "1", "", ""),
    ]


def test_of_one_of_several_objects_the_fields_of_all() -> None:
    one = {"properties": {"object": {"const": "a"}, "x": {"type": "string"}}, "required": ["object", "x"]}
    other = {"properties": {"object": {"const": "b"}, "y": {"type": "string"}}, "required": ["object", "y"]}

    assert fields({"anyOf": [one, other, {"type": "null"}]}) == [
        ("object", '"a" or "b"', "yes", ""),
        ("x", "string", "", ""),
        ("y", "string", "", ""),
    ]


def test_what_has_none() -> None:
    assert fields({}) == fields({"type": "string"}) == []
