"""The prompt of a model that writes one answer out of several."""

from __future__ import annotations

import re

from policies.prompts.synthesise import frame, synthesis_prompt


def test_all_that_it_needs_stands_in_it() -> None:
    prompt = synthesis_prompt("[user]\nCapital of {France}?\n", ["Paris.", "Lyon {0}."])
    mark = re.findall(r"^=== [0-9a-f]{12}(?= conversation$)", prompt, re.MULTILINE)
    assert len(mark) == 1
    assert f"{mark[0]} conversation\n[user]\nCapital of {{France}}?\n" in prompt
    assert f"{mark[0]} attempt 1\nParis.\n{mark[0]} attempt 2\nLyon {{0}}.\n{mark[0]} end\n" in prompt
    assert "2 attempts" in prompt


def test_the_mark_is_of_all_that_is_shown() -> None:
    """So nothing that is shown can hold it."""
    marks = {
        synthesis_prompt(*each).split(" stand ")[0][-16:]
        for each in (("a", ["b", "c"]), ("a", ["bc", ""]), ("ab", ["", "c"]), ("a", ["b"]))
    }
    assert len(marks) == 4


def test_the_frame_is_what_is_left() -> None:
    prompt = synthesis_prompt("x" * 100, ["y" * 30, "z" * 50])
    assert len(prompt) == frame(2) + 180
