"""The JSON schema (2020-12) of a configuration file, for editors; `python -m gateway.config.json_schema` writes it.

It describes the file as written: where a number or a choice stands, a `${NAME}` reference may stand instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.config.schema import Config

PATH = Path(__file__).with_name("trilemma.schema.json")

_REFERENCE: Mapping[str, str] = {
    "description": "One reference to the environment: ${NAME} or ${NAME:-default}.",
    "type": "string",
    "pattern": r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}$",
}
_TEXT: Mapping[str, str] = {"description": "Text with references to the environment in it.", "type": "string", "pattern": r"\$\{"}
_LIMITS = ("enum", "const", "pattern", "minLength", "maxLength")
_ANNOTATIONS = ("description", "default")


def json_schema() -> dict[str, Any]:
    """The schema, made from the models."""
    schema = _file_form(Config.model_json_schema())
    schema["$defs"] = dict(sorted({**schema["$defs"], "Reference": _REFERENCE, "Text": _TEXT}.items()))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Trilemma configuration"}
    return {**head, **schema}


def text() -> str:
    """The schema as the committed file holds it."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _file_form(node: dict[str, Any]) -> dict[str, Any]:
    """A schema of values -> a schema of the file: references may stand for numbers, choices and limited texts."""
    form = {key: _part(key, value) for key, value in node.items() if key != "title"}
    if "patternProperties" in form:  # would let names of another form pass
        (pattern, form["additionalProperties"]), *_ = form.pop("patternProperties").items()
        form["propertyNames"] = {"pattern": pattern}
    if "anyOf" in form:
        form["anyOf"] = [leaf for branch in form["anyOf"] for leaf in branch.get("anyOf", (branch,))]
    alternative = _alternative(form)
    if alternative is None:
        return form
    annotations = {key: form.pop(key) for key in _ANNOTATIONS if key in form}
    return {"anyOf": [form, {"$ref": f"#/$defs/{alternative}"}], **annotations}


def _part(keyword: str, value: Any) -> Any:
    if keyword in ("properties", "patternProperties", "$defs"):
        return {name: _file_form(child) for name, child in value.items()}
    if keyword in ("anyOf", "oneOf"):
        return [_file_form(child) for child in value]
    return _file_form(value) if keyword in ("items", "additionalProperties") and isinstance(value, dict) else value


def _alternative(node: dict[str, Any]) -> str | None:
    """The definition that allows references at a leaf; None where nothing more needs allowing."""
    if node.get("type") in ("integer", "number", "boolean") or ("const" in node and not isinstance(node["const"], str)):
        return "Reference"
    return "Text" if node.get("type") == "string" and any(limit in node for limit in _LIMITS) else None


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
