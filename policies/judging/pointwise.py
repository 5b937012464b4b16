"""Answers graded by a judge, each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from policies.decoding.strategy import Roles, Sample
from policies.judging.asking import JUDGE, asked, room
from policies.judging.conversation import conversation
from policies.judging.lineup import LONGEST, ended, shown
from policies.judging.verdicts import grade
from policies.prompts.judge import judge_prompt

ROOM: Final = 42_000
"""Characters of a question, as policies/prompts/judge.py bounds it."""
# Of them, its own words.
_FRAME: Final = 1_600


async def grades(roles: Roles, samples: Sequence[Sample], most: int) -> dict[int, int]:
    """1 to 5, the best, by index, all asked for at once; a sample whose grade cannot be had is missing. most: tokens of a reply."""
    turns, space = roles.task.turns, room(roles, JUDGE, most, ROOM, _FRAME)

    async def graded(sample: Sample) -> int | None:
        answer = ended(shown(sample.said), min(LONGEST, space // 2))
        left = space - len(answer)
        messages = [{"role": turn.role, "content": turn.text} for turn in turns]
        if space + _FRAME < ROOM and sum(len(turn.text) for turn in turns) > left:  # the model reads less than the prompt may hold
            messages = [{"role": "conversation", "content": conversation(turns, left)}]
        # The prompt's mark is made of the answer, which so cannot hold it.
        return await asked(roles, lambda again: judge_prompt(f"{roles.task.seed} {answer!r}", messages, answer, again=again), grade, most)

    async with asyncio.TaskGroup() as group:
        tasks = {sample.index: group.create_task(graded(sample)) for sample in samples}
    return {index: found for index, task in tasks.items() if (found := task.result()) is not None}
