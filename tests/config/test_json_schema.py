from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from gateway.config.json_schema import PATH, json_schema, text

EXAMPLES = sorted((Path(__file__).parents[2] / "deploy/examples").glob("*.yaml"))
BACKENDS: dict[str, Any] = {"a": {"url": "http://a:8000", "models": {"m": "m"}}}


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(PATH.read_text()))


def test_the_committed_schema_is_the_generated_one() -> None:
    assert PATH.read_text() == text(), "write it anew: python -m gateway.config.json_schema"


def test_it_is_a_schema() -> None:
    assert jsonschema_rs.meta.is_valid(json_schema())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_follow_it(validator: jsonschema_rs.Draft202012Validator, example: Path) -> None:
    assert [str(error) for error in validator.iter_errors(yaml.safe_load(example.read_text()))] == []


@pytest.mark.parametrize(
    "sections",
    [
        {"version": "${V:-1}", "server": {"port": "${PORT:-8080}", "watch": "${W}", "host": "h-${X}", "grace_s": "${G}"}},
        {"server": {"workers": "${N}"}, "storage": {"url": "${URL}"}},
        {"backends": {"a": {"url": "${URL}", "engine": "${E}", "weight": "${W:-1}", "models": {"m": "${M}"}}}},
        {"keys": [{"name": "k", "sha256": "${DIGEST}", "scopes": ["${SCOPE}"]}]},
    ],
)
def test_references_may_stand_where_values_do(validator: jsonschema_rs.Draft202012Validator, sections: dict[str, Any]) -> None:
    assert validator.is_valid({"version": 1, "backends": BACKENDS, **sections})


@pytest.mark.parametrize(
    "sections",
    [
        {"version": 2},
        {"sever": {}},
        {"backends": {}},
        {"server": {"port": "8080"}},
        {"server": {"port": 70_000}},
        {"server": {"port": "x${PORT}"}},
        {"server": {"watch": "yes"}},
        {"backends": {"a b": BACKENDS["a"]}},
        {"backends": {"a": {"url": "ftp://a", "models": {"m": "m"}}}},
        {"backends": {"a": {"url": "http://a", "models": {"m": "m"}, "engine": "vlm"}}},
        {"keys": [{"name": "k", "sha256": "short"}]},
    ],
)
def test_mistakes_do_not_follow_it(validator: jsonschema_rs.Draft202012Validator, sections: dict[str, Any]) -> None:
    assert not validator.is_valid({"version": 1, "backends": BACKENDS, **sections})


def test_every_key_is_described() -> None:
    schema = json_schema()
    sections = {**schema["$defs"], "Config": schema}
    undescribed = [
        f"{name}.{key}"
        for name, section in sections.items()
        for key, value in section.get("properties", {}).items()
        if not value.get("description") and not sections[value["$ref"].removeprefix("#/$defs/")]["description"]
    ]
    assert undescribed == []
