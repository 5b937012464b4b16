"""A request as a judge sees it."""

from __future__ import annotations

import pytest

from policies.judging.conversation import conversation
from policies.values.prompt import Turn


def test_a_request_that_fits_is_shown_as_it_is() -> None:
    turns = (Turn("system", "Be brief."), Turn("user", "Hi {there}"), Turn("assistant", ""), Turn("user", "6 x 7?"))
    assert conversation(turns, 1_000) == "[system]\nBe brief.\n[user]\nHi {there}\n[user]\n6 x 7?\n"


def test_of_a_long_one_the_instructions_and_the_end_are() -> None:
    turns = (Turn("system", "Be brief."), *(Turn("user", f"<{number}>" + "x" * 90) for number in range(20)))
    text = conversation(turns, 500)
    assert text.startswith("[system]\nBe brief.\n[...]\n[user]\n<16>")
    assert "<19>" in text and "<15>" not in text
    assert len(text) <= 500


@pytest.mark.parametrize("room", [60, 100, 333, 4_000])
def test_a_question_that_is_too_long_keeps_both_its_ends(room: int) -> None:
    text = conversation((Turn("system", "s" * 5_000), Turn("user", "begin" + "x" * 9_000 + "end?")), room)
    assert len(text) <= room
    assert "begin" in text and text.endswith("end?\n")
