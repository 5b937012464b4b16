"""A question to a judge: asked once more where the reply cannot be read, and never at the expense of the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from policies.decoding.strategy import Roles, Unanswered
from policies.values.answer import Said

JUDGE: Final = "judge"
"""The role that judges; where none is configured, the plan's own model does."""
FAILED: Final = "judge_failed"
"""Why something else decided."""
TRIES: Final = 2
"""How often one question is asked, at most."""
Read = TypeVar("Read")

# Characters; with less there is nothing to be judged. A model that cannot read even that refuses, and counts as one that failed.
_LEAST: Final = 1_000


def room(roles: Roles, role: str, most: int, wished: int, frame: int) -> int:
    """Characters for what is asked about. most: tokens of the reply. wished: characters of the whole message. frame: of its own words."""
    return max(_LEAST, roles.room(role, most, wished) - frame)


async def asked(
    roles: Roles, prompt: Callable[[bool], str], read: Callable[[Said], Read | None], most: int, role: str = JUDGE
) -> Read | None:
    """What the reply comes to; None: nothing, twice, or the role failed, which has had its attempts. prompt: the message, given whether the
    reply before could not be read. most: tokens of a reply."""
    for tried in range(TRIES):
        try:
            reply = await roles.ask(role, prompt(tried > 0), most)
        except Unanswered:
            return None
        verdict = read(reply.said)
        if verdict is not None:
            return verdict
    return None
