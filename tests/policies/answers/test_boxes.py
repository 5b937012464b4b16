"""Boxes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.boxes import boxes


@pytest.mark.parametrize(
    ("text", "contents", "unclosed"),
    [
        (r"\boxed{\frac{1}{2}}", [r"\frac{1}{2}"], False),
        (r"\[ \boxed{42} \]", ["42"], False),
        (r"\boxed{1}, or \boxed{2}", ["1", "2"], False),
        (r"\boxed{a_{1}^{2}}", ["a_{1}^{2}"], False),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"], False),
        (r"\boxed{\}}", [r"\}"], False),
        (r"\boxed{a \\}", [r"a \\"], False),
        (r"\fbox{7}", ["7"], False),
        (r"\boxed {7}", ["7"], False),
        (r"\boxed 7 then", ["7"], False),
        (r"\boxed{1/2", [], True),
        (r"\boxed{1/2 and \boxed{3}", ["3"], True),
        (r"\boxed{\boxed{5}}", ["5", r"\boxed{5}"], False),
        (r"{ \boxed{5}", ["5"], False),
        (r"} \boxed{5}", ["5"], False),
        (r"\boxed{}", [], False),
        (r"\boxed{ }", [], False),
        (r"\unboxed{5}", [], False),
        ("boxed{5}", [], False),
        ("", [], False),
    ],
)
def test_braces_are_balanced(text: str, contents: list[str], unclosed: bool) -> None:
    found = boxes(text)
    assert [box.content for box in found.complete] == contents
    assert found.unclosed == unclosed


BALANCED = st.recursive(
    st.text(alphabet="ab1 ", max_size=4), lambda inner: st.lists(inner, max_size=3).map(lambda some: "{" + "".join(some) + "}")
)


@given(BALANCED, st.text(alphabet="ab {", max_size=5), st.text(alphabet="ab }", max_size=5))
def test_what_is_balanced_comes_back_whole(content: str, before: str, after: str) -> None:
    found = boxes(f"{before}\\boxed{{{content}}}{after}")
    expected = content.strip()
    assert [box.content for box in found.complete] == ([expected] if expected else [])
