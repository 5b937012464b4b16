"""What is said apart from thoughts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.values.thinking import TAGS, spoken


@pytest.mark.parametrize(("opens", "closes"), TAGS)
def test_each_spelling_of_the_tags(opens: str, closes: str) -> None:
    assert spoken(f"{opens}\nIt may be 3.\n{closes}\n\n4") == "\n\n4"
    assert spoken(f" \n{opens}It may be 3.{closes}4") == "4"
    assert spoken(f"{opens}It may be 3.") is None
    assert spoken(f"It may be 3.{closes}4") == "4"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4", "4"),
        ("", ""),
        ("reason</think>4", "4"),
        ("<think></think>4", "4"),
        ("<think>a</think>\n<think>b</think>4", "\n4"),
        ("First this.\n<think>Or that?</think>\nThat.", "First this.\n\nThat."),
        ("First this.\n<think>Or that?", None),
        ("The tag `<think>` opens, and `</think>` closes.", "The tag `<think>` opens, and `</think>` closes."),
        ('A "</think>" ends it.', 'A "</think>" ends it.'),
        ("A model writes <think> first and </think> then.", "A model writes <think> first and </think> then."),
        ("<think>It ends with `</think>`, I know.</think>4", "4"),
        ("The `<think>` is mine.</think>4", "4"),
        ('Is it Paris?</think>"Paris"', '"Paris"'),
        ("<think>Is it Paris?</think>`Paris`", "`Paris`"),
        ("Write `<think>a</think>`.", "Write `<think>a</think>`."),
    ],
)
def test_tags_count_where_engines_put_them(text: str, said: str | None) -> None:
    assert spoken(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("It may be 3", None),
        ("It may be 3</think>4", "4"),
        ("<think>It may be 3</think>4", "4"),
        ("I use <think> here</think>4", "4"),
        ("", None),
    ],
)
def test_thoughts_that_the_prompt_has_opened(text: str, said: str | None) -> None:
    assert spoken(text, opened=True) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<|channel|>analysis<|message|>3?<|end|><|start|>assistant<|channel|>final<|message|>4<|return|>", "4"),
        ("<|channel|>analysis<|message|>3?", None),
        ("<|channel|>analysis<|message|>3?<|end|><|start|>assistant<|channel|>final", ""),
        ('<|channel|>final <|constrain|>json<|message|>{"a": 1}', '{"a": 1}'),
    ],
)
def test_channels(text: str, said: str | None) -> None:
    assert spoken(text) == said


PIECES = st.sampled_from([tag for pair in TAGS for tag in pair] + ["`", "\n", " ", "4", "<|channel|>", "final", "<|message|>"])


@given(st.lists(PIECES, max_size=12).map("".join), st.booleans())
def test_any_order_of_tags_is_read(text: str, opened: bool) -> None:
    said = spoken(text, opened)
    assert said is None or len(said) <= len(text)


@given(st.text(alphabet="ab. \n<>/", max_size=40))
def test_a_text_without_tags_is_all_said(text: str) -> None:
    assert spoken(text) == text
