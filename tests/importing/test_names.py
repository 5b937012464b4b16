from __future__ import annotations

import re

import pytest

from gateway.importing.names import fitting, unique, words


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("gpt-4o", "gpt-4o"),
        ("openai/gpt-4o:latest@x+y", "openai/gpt-4o:latest@x+y"),
        ("a--b", "a--b"),
        ("my model (big)", "my-model-big"),
        ("_hidden", "hidden"),
        ("日本語", "model"),
        ("", "model"),
        ("x" * 300, "x" * 200),
    ],
)
def test_fitting(name: str, fits: str) -> None:
    assert fitting(name) == fits
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*", fitting(name))


def test_unique() -> None:
    assert unique("a", {"b"}) == "a"
    assert unique("a", {"a", "a-2"}) == "a-3"
    assert unique("x" * 200, {"x" * 200}) == "x" * 198 + "-2"


def test_words() -> None:
    assert words("a b  c") == {"a", "b", "c"}
