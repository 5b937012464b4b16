"""A question to a judge."""

from __future__ import annotations

from policies.judging.asking import asked
from policies.values.answer import Said
from tests.support.roles import Asked, FakeRoles, Reply, says


def prompt(again: bool) -> str:
    return "again" if again else "first"


def number(said: Said) -> int | None:
    return int(said.text) if said.text.isdigit() else None


async def test_a_reply_that_can_be_read() -> None:
    roles = FakeRoles(replies=says("0"))
    assert await asked(roles, prompt, number, 70) == 0
    assert roles.asked == [Asked(0, "judge", "first", 70)]


async def test_one_that_cannot_is_asked_for_once_more() -> None:
    def replies(asked: Asked) -> Reply:
        return "7" if asked.prompt == "again" else "well"

    roles = FakeRoles(replies=replies)
    assert await asked(roles, prompt, number, 70, role="other") == 7
    assert [(each.role, each.prompt) for each in roles.asked] == [("other", "first"), ("other", "again")]


async def test_but_not_more_often() -> None:
    roles = FakeRoles(replies=says("well"))
    assert await asked(roles, prompt, number, 70) is None
    assert [each.prompt for each in roles.asked] == ["first", "again"]


async def test_a_role_that_fails_is_left_alone() -> None:
    roles = FakeRoles()
    assert await asked(roles, prompt, number, 70) is None
    assert [each.prompt for each in roles.asked] == ["first"]
