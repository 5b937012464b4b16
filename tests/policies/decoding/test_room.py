"""Questions to a model that reads less than a strategy may ask: they are made to fit."""

from __future__ import annotations

from typing import Any

import pytest

from policies.decoding.registry import strategy
from policies.decoding.strategy import Task
from policies.values.prompt import Turn
from tests.support.roles import FakeRoles, sample, says, winner

LONG = [sample(index, f"{'step ' * 20_000}\nThe answer is {index}.") for index in range(3)]
TASK = Task((Turn("system", "y" * 30_000), Turn("user", "x" * 30_000 + "?")), 1)
ASKED: dict[str, tuple[str, dict[str, Any], str]] = {
    "genselect": ("genselect", {"n": 3}, "Judgment: 1"),
    "synthesis": ("synthesis", {"n": 3}, "The answer is 2."),
    "tournament": ("tournament", {"n": 3, "criteria": "Right."}, "Judgment: A"),
    "graded": ("best_of_n", {"n": 3, "select": "judge"}, "Verdict: 4"),
    "checked": ("cascade", {"first": 1, "check": "judge", "threshold": 0.1}, "Verdict: 4"),
}


@pytest.mark.parametrize("reads", [3_500, 8_000, 20_000])
@pytest.mark.parametrize("case", ASKED)
async def test_the_question_is_no_longer_than_its_model_reads_and_shows_the_ends(case: str, reads: int) -> None:
    kind, params, reply = ASKED[case]
    roles = FakeRoles(LONG, says(reply), task=TASK)
    roles.reads = reads
    won = await winner(strategy(kind, params), roles)
    assert not won.why.endswith(("_failed", "_unchecked"))
    assert roles.asked
    for asked in roles.asked:
        assert len(asked.prompt) <= reads
        assert any(f"The answer is {index}." in asked.prompt for index in range(3))
        assert "x?" in asked.prompt, "the end of the question"
