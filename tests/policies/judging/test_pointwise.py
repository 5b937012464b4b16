"""A judge who grades each answer by itself."""

from __future__ import annotations

from policies.decoding.strategy import Task
from policies.judging.pointwise import grades
from policies.values.prompt import Turn
from tests.support.roles import Asked, FakeRoles, Reply, sample, says

SAMPLES = [sample(index, f"<think>hidden</think>It is {40 + index}.") for index in range(4)]


async def test_each_is_asked_for_at_once() -> None:
    def replies(asked: Asked) -> Reply:
        return next(f"Verdict: {index + 1}" for index in range(4) if f"It is {40 + index}." in asked.prompt)

    roles = FakeRoles(replies=replies, task=Task((Turn("user", "6 x 7?"),), 1))
    assert await grades(roles, SAMPLES, 300) == {0: 1, 1: 2, 2: 3, 3: 4}
    assert roles.most_open == 4 and roles.open == 0
    assert all(each.role == "judge" and each.most == 300 for each in roles.asked)
    assert all("[user]\n6 x 7?" in each.prompt and "hidden" not in each.prompt for each in roles.asked)


async def test_grades_that_cannot_be_had_are_missing() -> None:
    def replies(asked: Asked) -> Reply:
        again = "had no such last line" in asked.prompt
        if "It is 40." in asked.prompt:
            return None
        if "It is 41." in asked.prompt:
            return "Verdict: 9"
        if "It is 42." in asked.prompt:
            return "Verdict: 3" if again else "Fine."
        return "Verdict: 5"

    assert await grades(FakeRoles(replies=replies), SAMPLES, 300) == {2: 3, 3: 5}


async def test_of_a_long_answer_the_end_is_judged() -> None:
    roles = FakeRoles(replies=says("Verdict: 5"))
    await grades(roles, [sample(0, "\ud800 begins" + "x" * 200_000 + " It is 42.")], 300)
    assert "It is 42." in roles.asked[0].prompt and "begins" not in roles.asked[0].prompt
    assert len(roles.asked[0].prompt) < 50_000
