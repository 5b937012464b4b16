"""When answers are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.equivalence import MOST_COMPARISONS, Key, Verdict, joined, key, merged


@pytest.mark.parametrize(
    "same",
    [
        ("0.5", r"\frac12", "1/2", r"50\%", ".50", "50 %", r"$\frac{1}{2}$", "x = 0.5"),
        ("-3", "\u22123", "- 3", "-3.0", r"$-3$"),
        ("35 cm", "35", "35.0", r"35\text{ cm}"),
        ("12", "7 + 5 = 12", "= 12", "12.", "**12**", r"\boxed{12}"),
        ("B", "b", "(B)", "**B**", "B.", "B) Paris", "(b) Paris", "Option B", "B because it is", r"\text{B}", "B: 4"),
        ("Paris", "paris.", "The Paris", '"Paris"', "PARIS!"),
        ("twenty-one", "Twenty One"),
        ("10080", r"10,\!080", r"10,\! 080"),
        ("25", "3^2 + 4^2 = 25", "x = 5^2 = 25", "f(x) = 25", r"\theta = 25^\circ", "12 apples + 13 apples = 25 apples", "the sum = 25"),
        ("1, -2", "1,-2"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        ("U.S.", "US", "us"),
        ("don't", "don\u2019t"),
        ("(1, 2)", "(1,2)", r"\left(1, 2\right)", "(1.0, 4/2)"),
        (r"\{1, 2\}", r"\{2, 1\}", r"$\left\{2,1,1\right\}$"),
        ("1331 and 1728", "1331, 1728", "1331, and 1728"),
        ("x^2 + 1", "x^2+1", "$x^{2}+1$".replace("{2}", "2")),
        ('{"a": 1, "b": [2]}', '{"b":[2.0],"a":1}'),
    ],
)
def test_the_same(same: tuple[str, ...]) -> None:
    keys = {text: key(text) for text in same}
    assert len(set(keys.values())) == 1, keys
    assert None not in keys.values()


@pytest.mark.parametrize(
    "different",
    [
        ("1/2", "1/3", "0.333", "2", "-1/2", "1/2!"),
        ("1,234", "1234", "1.234"),
        ("1331 and 1728", "1728", "1331", "1728 and 1331"),
        ("A", "B", "a car", "A car park"),
        ("(1, 2)", "[1, 2]", "(2, 1)", "(1, 2]", r"\{1, 2\}", "1"),
        ("x + 1", "x - 1", "X + 1"),
        (r"\Delta", r"\delta", "delta"),
        ("5", "5!", "5^2", "5x", r"5\pi", "5 pi", "V"),
        ("3, -4", "3, 4", "3"),
        ("7 am", "7 pm", "7"),
        ("v1.2", "v12", "v1 2"),
        ("x \\geq 5", "x \\leq 5", "x = 5"),
        ("3:4", "34", "3/4"),
        ("0", "5x - 7y + 4 = 0", "x^2 = 0", r"\sin x = 0"),
        (r"(0,9) \cup (9,36)", r"(0,9) \cap (9,36)", "(0,9)"),
        ("1,2", "(1,234)", "1,234", "1234"),
        ("1 or 2", "1 and 2"),
        ('{"a": 1}', '{"a": "1"}', '{"a": true}'),
        ("red, blue", "red, blue and green"),
    ],
)
def test_not_the_same(different: tuple[str, ...]) -> None:
    keys = {text: key(text) for text in different}
    assert len(set(keys.values())) == len(different), keys


@pytest.mark.parametrize(
    ("text", "kind"), [("4", "number"), ("1,234", "doubtful"), ("D", "letter"), ("I", "text"), ("J", "text"), ("x^2", "expression")]
)
def test_kinds(text: str, kind: str) -> None:
    found = key(text)
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize("text", ["", " ", "...", "**", "?!", "$$"])
def test_nothing_said(text: str) -> None:
    assert key(text) is None


def test_options_are_the_questions() -> None:
    assert key("J", options="ABCDEFGHIJ") == Key("letter", "J")
    assert key("E", "letter", "ABCD") is None
    assert key("E", "any", "ABCD") == Key("text", "e")
    assert key("A", "text") == Key("text", "a")


def test_only_what_is_wanted() -> None:
    assert key("Paris", "number") is None
    assert key("Paris", "letter") is None
    assert key("B", "number") is None
    assert key("4", "number") == Key("number", "4")
    assert key('{"a": 1}', "number") is None
    assert key("A house, of course", "letter") is None


def test_long_texts_are_told_apart() -> None:
    keys = [key("word " * 10_000 + end) for end in ("one", "two")]
    assert keys[0] != keys[1]
    assert all(each is not None and len(each.value) <= 200 for each in keys)


def keys_of(*texts: str) -> list[Key | None]:
    return [key(text) for text in texts]


def test_others_decide_a_comma() -> None:
    number = Key("number", "1234")
    assert joined(keys_of("1,234", "1234", "Paris")) == [number, number, Key("text", "paris")]
    assert joined([*keys_of("1,234"), None]) == [Key("doubtful", "1234"), None]


def test_nobody_decides_a_comma_where_both_are_said() -> None:
    keys = keys_of("1,234", "1234", "1.234")
    assert joined(keys) == keys
    keys = keys_of("1,234", "1.234")
    assert joined(keys) == keys


class Asked:
    """A slow check that knows one pair, and keeps what it was asked."""

    def __init__(self, *same: str, otherwise: Verdict = "different") -> None:
        self.same = set(same)
        self.otherwise = otherwise
        self.pairs: list[tuple[str, str]] = []

    def __call__(self, one: str, other: str) -> Verdict:
        self.pairs.append((one, other))
        return "equal" if {one, other} <= self.same else self.otherwise


def test_a_slow_check_merges_what_it_calls_equal() -> None:
    texts = ["x(x+1)", "x^2+x", "7", "x^2+x", "Paris", ""]
    keys = [*keys_of(*texts[:-1]), None]
    asked = Asked("x(x+1)", "x^2+x")
    assert merged(keys, texts, asked) == [keys[1], keys[1], keys[2], keys[1], keys[4], None]
    assert asked.pairs == [("x^2+x", "x(x+1)"), ("x^2+x", "7")]


def test_what_is_unknown_stays_apart() -> None:
    texts = ["x(x+1)", "x^2+x"]
    keys = keys_of(*texts)
    assert merged(keys, texts, Asked(otherwise="unknown")) == keys


def test_numbers_words_and_lists_are_not_asked_about() -> None:
    texts = ["1", "2", "Paris", "A", "(1, 2)", "(2, 1)"]
    asked = Asked(*texts)
    assert merged(keys_of(*texts), texts, asked) == keys_of(*texts)
    assert asked.pairs == []


def test_a_slow_check_is_asked_so_often_and_no_more() -> None:
    texts = [f"x^{at}" for at in range(64)]
    asked = Asked()
    assert merged(keys_of(*texts), texts, asked) == keys_of(*texts)
    assert len(asked.pairs) == MOST_COMPARISONS
    none = Asked(*texts)
    assert merged(keys_of(*texts), texts, none, most=0) == keys_of(*texts)
    assert none.pairs == []


@given(st.text(max_size=60))
def test_any_text_has_a_key_or_none(text: str) -> None:
    found = key(text)
    assert found == key(text) == key(f" {text}\n")
    assert found is None or 0 < len(found.value) <= 200


@given(st.lists(st.sampled_from([None, *keys_of("1,234", "1234", "1.234", "2,000", "2000", "Paris")]), max_size=8))
def test_deciding_commas_twice_changes_nothing(keys: list[Key | None]) -> None:
    once = joined(keys)
    assert joined(once) == once
    assert [each is None for each in once] == [each is None for each in keys]
