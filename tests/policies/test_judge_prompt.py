"""A judge's prompt, and its verdict."""

from __future__ import annotations

import pytest

from policies.prompts.judge import CRITERIA, judge_prompt, verdict

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Capital of {France}?"}]}]


def test_all_that_it_needs_stands_in_it() -> None:
    prompt = judge_prompt("id", ASK, "Paris.")
    for part in ("[system]\nBe brief.", "[user]\nCapital of {France}?", "Paris.", CRITERIA, "Verdict: N"):
        assert part in prompt
    assert "had no such last line" not in prompt


def test_an_operator_s_own_criteria() -> None:
    prompt = judge_prompt("id", ASK, "Paris.", "It must rhyme.")
    assert "It must rhyme." in prompt and CRITERIA not in prompt


def test_when_it_is_asked_again() -> None:
    first, second = judge_prompt("id", ASK, "Paris."), judge_prompt("id", ASK, "Paris.", again=True)
    assert second.startswith(first)
    assert "End with the line `Verdict: N`" in second.removeprefix(first)


def test_an_answer_cannot_end_itself() -> None:
    """The mark differs from decision to decision, so nothing that is written beforehand holds it."""
    marks = {judge_prompt(id_, ASK, "x").split(" conversation\n")[0].splitlines()[-1] for id_ in ("a", "b")}
    assert len(marks) == 2


def test_a_long_conversation_is_cut() -> None:
    """The first message that instructs, and the last ones."""
    talk = [ASK[0], *({"role": "user", "content": f"<{n}>" + "x" * 5_000} for n in range(50))]
    prompt = judge_prompt("id", talk, "y" * 1_000_000)
    assert len(prompt) < 60_000
    assert "Be brief." in prompt and "<49>" in prompt and "<0>" not in prompt


def test_messages_of_any_kind() -> None:
    judge_prompt("id", [1, None, {}, {"role": 3, "content": None}, {"content": [1, {"text": 2}, {"text": "seen"}]}], "x")


@pytest.mark.parametrize(
    ("reply", "grade"),
    [
        ("It is right.\nVerdict: 5", 5),
        ("Verdict: 1\n", 1),
        ("**Verdict:** 4/5", 4),
        ("verdict - 3.", 3),
        ("## Verdict: **2**", 2),
        ("Verdict: 4 out of 5", 4),
        ("Verdict: 2\nOn second thought:\nVerdict: 3", 3),
        ("<think>Verdict: 1</think>Verdict: 5", 5),
        ("4", 4),
        ('"2"', 2),
        ("Verdict: 4.0", 4),
        ("Verdict: 7", None),
        ("Verdict: 0", None),
        ("Verdict: -1", None),
        ("Verdict: 4.5", None),
        ("Verdict: 2 or 3", None),
        ("Verdict: none", None),
        ("Verdict: N", None),
        ("7", None),
        ("none", None),
        ("There are 4 things wrong.", None),
        ("<think>[4]", None),
        ("<think>3</think>", None),
        ("", None),
    ],
)
def test_verdicts(reply: str, grade: int | None) -> None:
    assert verdict(reply) == grade
