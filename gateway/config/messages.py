"""What pydantic found wrong, in the words of somebody who writes a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import ErrorDetails

from gateway.config.problems import Finding, Loc, did_you_mean
from gateway.config.schema import PATTERNS, Config
from gateway.config.tree import Node, Scalar, find

_SECTION_TYPES = ("model_type", "dict_type", "model_attributes_type")


def finding(error: ErrorDetails, root: Node) -> Finding:
    """The finding for one of pydantic's errors about the tree at `root`."""
    loc, kind, context = error["loc"], error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return Finding(loc, _unknown_key(loc), about_key=True)
    if loc and loc[-1] == "[key]":
        return Finding(loc[:-1], f"the name {_worded(error, kind, context)}", about_key=True)
    if kind == "missing":
        return Finding(loc, "missing: write `version: 1`" if loc == ("version",) else "missing", about_key=True)
    node = find(root, loc)
    message = _worded(error, kind, context)
    if kind == "too_short" and isinstance(node, Scalar):
        message = "must not be empty"
    elif kind in (*_SECTION_TYPES, "list_type") and isinstance(node, Scalar) and node.plain and node.text == "":
        message = f"is empty; {message}"
    elif kind == "string_type" and isinstance(node, Scalar) and node.plain and node.text:
        message += ": put it in quotes"
    elif kind in ("int_type", "float_type", "bool_type") and isinstance(node, Scalar) and not node.plain:
        message += ": write it without quotes"
    return Finding(loc, message)


def _worded(error: ErrorDetails, kind: str, context: Mapping[str, Any]) -> str:
    if kind == "value_error":
        return str(context["error"])
    if kind in _SECTION_TYPES:
        return "should be a mapping (`key: value` lines)"
    if kind == "list_type":
        return "should be a list"
    if kind == "bool_type":
        return "should be true or false"
    if kind == "too_short":
        return f"needs at least {context['min_length']} entry"
    if kind == "string_pattern_mismatch":
        return PATTERNS.get(context["pattern"], "has a form that is not allowed here")
    return error["msg"].removeprefix("Input ").removeprefix("String ")


def _unknown_key(loc: Loc) -> str:
    known = _fields(loc[:-1])
    suggestion = did_you_mean(str(loc[-1]), known)
    if suggestion or not known:
        return f"unknown key{suggestion}"
    return f"unknown key; known here: {', '.join(known)}"


def _fields(loc: Loc) -> list[str]:
    """The keys that the section at `loc` knows, found in the JSON schema (all branches of a union)."""
    schema = Config.model_json_schema()
    sections = _branches(schema, schema)
    for part in loc:
        below = [child for section in sections if (child := _below(section, part)) is not None]
        if below:
            sections = [branch for child in below for branch in _branches(schema, child)]
    return [key for section in sections for key in section.get("properties", {})]


def _below(section: Mapping[str, Any], part: str | int) -> Mapping[str, Any] | None:
    if isinstance(part, int):
        items: Mapping[str, Any] | None = section.get("items")
        return items
    child = section.get("properties", {}).get(part)
    if child is None and "properties" not in section:
        child = section.get("additionalProperties") or next(iter(section.get("patternProperties", {}).values()), None)
    return child if isinstance(child, dict) else None


def _branches(schema: Mapping[str, Any], node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "$ref" in node:
        return _branches(schema, schema["$defs"][node["$ref"].rsplit("/", 1)[-1]])
    branches = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    return [leaf for branch in branches for leaf in _branches(schema, branch)] if branches else [node]
