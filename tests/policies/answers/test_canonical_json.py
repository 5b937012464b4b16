"""JSON that means the same."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.canonical_json import DEEPEST, Unreadable, canonical, canonical_value


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('{"b": 1.0, "a": "x"}', '{"a":"x","b":1}'),
        ("10e-1", "1"),
        ("1e2", "100"),
        ("-0.0", "0"),
        ("0.10", "1e-1"),
        ("1e30", "1e30"),
        ("123000000000000000000000000", "123e24"),
        ("1e99999", "1e99999"),
        ("[true, null, 1]", "[true,null,1]"),
        ('{"a": 1, "a": 2}', '{"a":2}'),
        ('"\u00e9"', '"\\u00e9"'),
    ],
)
def test_one_text_for_all(text: str, same: str) -> None:
    assert canonical(text) == same


def test_numbers_are_not_rounded() -> None:
    assert canonical("0.1") != canonical("0.10000000000000001")
    assert canonical("9007199254740993") != canonical("9007199254740992")


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "-Infinity", "{'a': 1}", "[" * 100_000, "[" * (DEEPEST + 2) + "]" * (DEEPEST + 2), "1e" + "9" * 30]
)
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(Unreadable):
        canonical(text)


def test_what_json_does_not_have() -> None:
    with pytest.raises(Unreadable):
        canonical_value({"a": object()})
    with pytest.raises(Unreadable):
        canonical_value(float("nan"))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**53), max_value=2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_it_is_json_of_the_same_meaning(value: object) -> None:
    text = canonical(json.dumps(value))
    assert json.loads(text, parse_int=float) == value  # whole numbers up to 2^53, which floats hold exactly
    assert canonical(text) == text == canonical_value(value)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=5), st.randoms())
def test_the_order_of_names_does_not_count(value: dict[str, object], random: Random) -> None:
    names = list(value)
    random.shuffle(names)
    assert canonical(json.dumps({name: value[name] for name in names}, indent=2)) == canonical(json.dumps(value))
