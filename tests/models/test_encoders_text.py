"""What is read of a conversation, and what is remembered of it."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.encoders.text import Excerpt, Memo, cut, excerpts, utf8, valid
from policies.values.prompt import Turn


def turns(*texts: str) -> list[Turn]:
    return [Turn("user", text) for text in texts]


def test_every_message_is_read_with_its_role() -> None:
    read = excerpts([Turn("system", "be brief"), Turn("user", "hello"), Turn("assistant", "hi")], 1_000)

    assert read == [Excerpt("system", "be brief", 8), Excerpt("user", "hello", 5), Excerpt("assistant", "hi", 2)]


def test_a_long_message_is_read_at_both_ends() -> None:
    [only] = excerpts(turns("a" * 600 + "b" * 600), 1_000)

    assert only == Excerpt("user", "a" * 500 + "b" * 500, 1_200)


@pytest.mark.parametrize(("messages", "share"), [(1, 1_024), (2, 512), (3, 256), (4, 256), (5, 128), (8, 128), (9, 64), (100, 64)])
def test_messages_share_what_is_read(messages: int, share: int) -> None:
    read = excerpts(turns(*["x" * 2_000] * messages), 1_024)

    assert [len(each.text) for each in read] == [share] * messages


def test_of_an_endless_conversation_the_beginning_and_the_end_are_read() -> None:
    read = excerpts(turns(*map(str, range(1_000))), 100_000)

    assert [each.text for each in read] == [*map(str, range(16)), *map(str, range(1_000 - 112, 1_000))]
    assert [each.text for each in excerpts(turns(*"abcdefghijklmnopqrst"), 1_000, 8)] == list("anopqrst")


@given(text=st.text(max_size=50), most=st.integers(2, 60))
def test_a_cut_is_never_longer_than_asked(text: str, most: int) -> None:
    kept = cut(text, most)

    assert len(kept) <= most
    assert (kept == text) or len(text) > most


@given(text=st.text(st.characters(exclude_categories=[])))
def test_any_text_that_json_can_hold_has_bytes(text: str) -> None:
    assert utf8(text).decode() == valid(text)


def test_half_a_surrogate_pair_is_a_question_mark() -> None:
    assert utf8("a\ud800b") == b"a?b"
    assert valid("a\ud800é") == "a?é"


def test_a_memo_makes_a_value_once() -> None:
    asked: list[str] = []

    def make(text: str) -> int:
        asked.append(text)
        return len(text)

    memo: Memo[int] = Memo(10)

    assert [memo.value(text, make) for text in ("one", "three", "one")] == [3, 5, 3]
    assert asked == ["one", "three"]


def test_a_memo_forgets_what_was_not_asked_for_the_longest() -> None:
    asked: list[str] = []

    def make(text: str) -> str:
        asked.append(text)
        return text

    memo: Memo[str] = Memo(2)
    for text in ("a", "b", "a", "c", "a", "b"):
        assert memo.value(text, make) == text

    assert asked == ["a", "b", "c", "b"]
    assert len(memo) == 2


def test_a_memo_keeps_no_text() -> None:
    memo: Memo[int] = Memo(10)
    memo.value("a secret of somebody", len)

    assert "secret" not in repr(vars(memo))


def test_a_memo_bears_threads() -> None:
    memo: Memo[str] = Memo(3)
    wrong: list[str] = []

    def ask(offset: int) -> None:
        for number in range(2_000):
            text = str((number * 7 + offset) % 9)
            if memo.value(text, lambda asked: asked + "!") != text + "!":
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert len(memo) == 3
