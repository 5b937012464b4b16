"""What is written reads as what it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import tree
from gateway.config.references import References
from gateway.config.values import Values
from gateway.importing.writing import Reference, write

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LEAVES = TEXTS | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(1e-9, 1e6).map(lambda number: float(f"{number:.6g}"))
DATA = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=20)


def read(text: str, env: dict[str, str] | None = None) -> Any:
    root, problems = tree.compose(text)
    assert problems == []
    values = Values(root, References(env or {}))
    assert values.findings == []
    return values.data


@given(st.dictionaries(TEXTS, DATA, min_size=1, max_size=4))
def test_anything_reads_as_itself(data: dict[str, Any]) -> None:
    assert read(write(data, {})) == data


@pytest.mark.parametrize(
    "text",
    [
        "yes",
        "null",
        "~",
        "1e3",
        "0x1f",
        "12:30",
        "- a",
        "a: b",
        "#",
        "a #b",
        "${HOME}",
        "$${",
        "'",
        '"',
        "\\",
        "\u2028",
        "\x85",
        "🙂",
        " a ",
        "",
    ],
)
def test_awkward_texts(text: str) -> None:
    assert read(write({"a": {"b": {"c": text, text or "k": [text]}}}, {})) == {"a": {"b": {"c": text, text or "k": [text]}}}


def test_references_are_answered_and_nothing_else_is() -> None:
    data = {"a": {"b": {"url": Reference("${URL}")}}, "l": [{"x": Reference("${URL}"), "y": "${URL}"}]}
    assert read(write(data, {}), {"URL": "u"}) == {"a": {"b": {"url": "u"}}, "l": [{"x": "u", "y": "${URL}"}]}


def test_how_it_looks() -> None:
    data = {
        "version": 1,
        "backends": {"gpu": {"url": "http://gpu:8000", "models": {"a": "x/y", "b": "z:1"}, "weight": 2.5, "enabled": False}},
        "keys": [{"name": "a b", "models": ["*"]}],
    }
    comments = {("backends", "gpu"): ["look: here\n- evil: true"], ("keys", 0): ["this"]}
    assert write(data, comments) == (
        "version: 1\n"
        "\n"
        "backends:\n"
        "  # look: here - evil: true\n"
        "  gpu:\n"
        "    url: http://gpu:8000\n"
        '    models: {a: x/y, b: "z:1"}\n'
        "    weight: 2.5\n"
        "    enabled: false\n"
        "\n"
        "keys:\n"
        "  # this\n"
        '  - {name: "a b", models: ["*"]}\n'
    )


def test_what_is_too_long_for_a_line_takes_several() -> None:
    models = {f"model-{n}": f"engine-{n}" for n in range(12)}
    written = write({"backends": {"gpu": {"models": models, "list": [f"item-{n}" for n in range(20)]}}}, {})
    assert max(map(len, written.splitlines())) <= 120
    assert "\n      model-11: engine-11\n" in written
    assert "\n      - item-19\n" in written
    assert read(written)["backends"]["gpu"]["models"] == models
