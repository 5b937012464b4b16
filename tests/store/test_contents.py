from __future__ import annotations

import pytest

from gateway.store.contents import contents_row
from gateway.store.writer import Row
from tests.store.making import fill
from tests.support.stored import Place


@pytest.mark.parametrize(
    ("prompt", "answer", "row", "size"),
    [
        (b"[1]", b"{}", ("d", "[1]", "{}", False), 5),
        (b"[1]", None, ("d", "[1]", None, False), 3),
        (b"", b"", ("d", "", "", False), 0),
        (b"12345678", b"12345678", ("d", "12345678", "12345678", False), 16),
        (b"123456789", b"1", ("d", "12345678", "1", True), 9),
        (b"1", b"123456789", ("d", "1", "12345678", True), 9),
        ("1234567é".encode(), None, ("d", "1234567", None, True), 8),
        ("123456é".encode(), None, ("d", "123456é", None, False), 8),
        (b"a\xff\0b", None, ("d", "ab", None, False), 4),
    ],
)
def test_what_is_kept_of_8_bytes(prompt: bytes, answer: bytes | None, row: Row, size: int) -> None:
    """Cut between characters, and whatever else is in it can be stored as text."""
    assert contents_row("d", prompt, answer, 8) == (row, size)


def test_it_can_be_stored(place: Place) -> None:
    made, size = contents_row("d", b"\0\xff\xed\xa0\x80'\\" + "é漢🦊".encode(), b"x" * 100_000, 65_536)
    fill(place, ("contents", made, size))
    (row,) = place.rows("contents")
    assert (row["prompt"], len(row["answer"]), row["truncated"]) == ("'\\é漢🦊", 65_536, True)
