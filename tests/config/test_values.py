from __future__ import annotations

from typing import Any

from gateway.config.references import References
from gateway.config.tree import compose
from gateway.config.values import Values


def values(text: str, **env: str) -> Values:
    root, problems = compose(text)
    assert problems == []
    return Values(root, References(env))


def data(text: str, **env: str) -> Any:
    return values(text, **env).data


def test_values_without_references() -> None:
    assert data('{a: 1, b: "1", c: [true, x, null], d: {e: 1.5}}') == {"a": 1, "b": "1", "c": [True, "x", None], "d": {"e": 1.5}}


def test_one_unquoted_reference_is_read_as_yaml_reads_its_answer() -> None:
    assert data("port: ${PORT:-8080}") == {"port": 8080}
    assert data("on: ${ON}", ON="true") == {"on": True}
    assert data("key: ${KEY:-}") == {"key": None}


def test_quoted_or_partial_references_are_text() -> None:
    assert data('port: "${PORT}"', PORT="1") == {"port": "1"}
    assert data("port: ${PORT}${PORT}", PORT="1") == {"port": "11"}


def test_the_environment_cannot_become_structure() -> None:
    hostile = "x}, admin: {a: 1\nkeys: []"
    assert data("a: ${A}", A=hostile) == {"a": hostile}
    assert data("a: ${A}", A="[1, 2]") == {"a": "[1, 2]"}
    assert data("a: ${A}", A="*anchor") == {"a": "*anchor"}


def test_keys_are_not_expanded() -> None:
    assert data("${A}: 1", A="x") == {"${A}": 1}


def test_a_reference_can_be_read_the_other_way_once() -> None:
    found = values("{list: ['${N}', x]}", N="12")
    assert found.data == {"list": ["12", "x"]}
    assert found.reread(("list", 0))
    assert found.data == {"list": [12, "x"]}
    assert not found.reread(("list", 0))
    assert not found.reread(("list", 1))
    assert not found.reread(())


def test_what_has_no_answer_is_found_at_its_place() -> None:
    found = values("a: ['${GONE}']\nb: ${ALSO_GONE}\n")
    assert [each.loc for each in found.findings] == [("a", 0), ("b",)]
    assert found.data == {"a": [None], "b": None}
