"""Whether an answer is the JSON that was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.signals.json_schema import Undecided, fits
from policies.signals.schema import schema
from policies.values.answer import Said, ToolCall, Wanted

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
OBJECT = Wanted({"type": "json_object"})
AS_PERSON = Wanted({"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"name": "Ada", "age": 36}', 1.0),
        (' \n{"name": "Ada"}\n', 1.0),
        ('<think>{"name"?</think>{"name": "Ada"}', 1.0),
        ('{"name": ""}', 0.0),
        ('{"age": 3}', 0.0),
        ('{"name": "Ada", "age": 3.5}', 0.0),
        ('{"name": "Ada", "age": true}', 0.0),
        ('{"name": "Ada", "born": 1815}', 0.0),
        ('["Ada"]', 0.0),
        ('{"name": "Ada"', 0.0),
        ('```json\n{"name": "Ada"}\n```', 0.0),
        ('{"name": NaN}', 0.0),
        ("Her name is Ada.", 0.0),
        ("", 0.0),
        ("[" * 100_000, 0.0),
    ],
)
def test_against_a_schema(text: str, value: float) -> None:
    assert schema(AS_PERSON, Said(text, finish="stop")) == value


@pytest.mark.parametrize(("text", "value"), [('{"a": [1]}', 1.0), ("{}", 1.0), ("[1]", 0.0), ("3", 0.0), ("{a: 1}", 0.0)])
def test_any_object(text: str, value: float) -> None:
    assert schema(OBJECT, Said(text)) == value


@pytest.mark.parametrize("wanted", [None, {"type": "text"}, "json", [], {"type": "json_schema"}, {"type": ["json_object"]}])
def test_where_no_json_is_asked_for_it_says_nothing(wanted: Any) -> None:
    assert schema(Wanted(wanted), Said("no JSON", finish="stop")) is None


def test_of_what_was_cut_withheld_or_a_call_it_says_nothing() -> None:
    assert schema(OBJECT, Said('{"a": ', finish="length")) is None
    assert schema(OBJECT, Said("", finish="content_filter")) is None
    assert schema(OBJECT, Said("", (ToolCall("f", "{}"),), "tool_calls")) is None


NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": NODE}}
FITS: list[tuple[Any, Any, bool]] = [
    (1, True, True),
    (1, False, False),
    (1.0, {"type": "integer"}, True),
    (True, {"type": "integer"}, False),
    (True, {"const": 1}, False),
    (None, {"type": ["string", "null"]}, True),
    ("b", {"enum": ["a", "b"]}, True),
    ("c", {"enum": ["a", "b"]}, False),
    ("é", {"maxLength": 1}, True),
    ([1, "a"], {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, True),
    ([1, 2], {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, False),
    ([], {"minItems": 1}, False),
    ({"a": 1}, {"additionalProperties": {"type": "string"}}, False),
    (5, {"exclusiveMaximum": 5}, False),
    (5, {"maximum": 5}, True),
    (5, {"anyOf": [{"type": "string"}, {"minimum": 6}]}, False),
    (5, {"allOf": [{"type": "integer"}, {"minimum": 5}]}, True),
    ({"next": {"next": None}}, TREE, True),
    ({"next": {"next": 1}}, TREE, False),
]


@pytest.mark.parametrize(("value", "described", "does"), FITS)
def test_what_fits(value: Any, described: Any, does: bool) -> None:
    assert fits(value, described) is does


def test_a_caller_s_regular_expression_is_not_run() -> None:
    """One of these would take until the end of the world."""
    assert fits("a" * 50_000 + "!", {"type": "string", "pattern": "^(a+)+$"})


@pytest.mark.parametrize(
    "described",
    [
        {"$ref": "#"},
        {"$ref": "https://elsewhere/schema.json"},
        {"$ref": "#/$defs/none"},
        {"type": "text"},
        {"type": 3},
        {"required": "name"},
        {"minimum": "0"},
        {"properties": []},
        "object",
    ],
)
def test_a_schema_that_is_none_tells_nothing(described: Any) -> None:
    value, text = (1, "1") if described == {"minimum": "0"} else ({}, "{}")
    with pytest.raises(Undecided):
        fits(value, described)
    wanted = Wanted({"type": "json_schema", "json_schema": {"schema": described}})
    assert schema(wanted, Said(text)) is None


def test_the_work_is_bounded() -> None:
    """Two references in each of two references: 2^n ways."""
    described = {"$ref": "#/$defs/n0", "$defs": {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(40)}}
    described["$defs"]["n40"] = {}  # type: ignore[index]
    with pytest.raises(Undecided):
        fits(1, described)
    assert fits(json.loads("[" + "1," * 40_000 + "1]"), {"items": {"type": "integer"}})
