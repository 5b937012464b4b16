"""What a configuration says of the response curves of its plans."""

from __future__ import annotations

import json
from typing import Any

from gateway.config.load import parse
from gateway.config.plans import plans_of, responses_of
from models.response import Response

STRATEGIES: dict[str, Any] = {
    "checked": {"type": "best_of_n", "params": {"n": 8, "select": "verifier"}, "verifier": {"url": "http://v/check"}},
    "judged": {"type": "best_of_n", "params": {"n": 4, "select": "judge"}},
    "elsewhere": {"type": "best_of_n", "params": {"n": 4, "select": "judge"}, "roles": {"judge": "j"}},
    "vote": {"type": "self_consistency", "params": {"n": 8}},
    "chosen": {"type": "genselect", "params": {"n": 6}},
    "games": {"type": "tournament", "params": {"n": 5}},
    "written": {"type": "synthesis"},
    "mixed": {"type": "synthesis", "params": {"roles": ["j"]}, "roles": {"j": "j"}},
    "steps": {"type": "cascade"},
    "broken": {"type": "best_of_n", "params": {"n": 1}},
}


def test_each_strategy_says_its_kind_and_another_judge_is_another_kind() -> None:
    config = parse(
        json.dumps(
            {
                "version": 1,
                "backends": {"b": {"url": "http://b", "models": {"m": "m", "j": "j"}}},
                "strategies": STRATEGIES,
                "virtual_models": {
                    "auto": {"policy": "fixed", "plans": {"plain": {"model": "m"}} | {n: {"model": "m", "strategy": n} for n in STRATEGIES}}
                },
                "keys": [{"name": "k", "sha256": "a" * 64}],
            }
        ),
        {},
    ).config

    found = {plan.name: plan.response for plan in plans_of(config.virtual_models["auto"], responses_of(config))}

    assert found == {
        "plain": None,
        "checked": Response("best_of_n/verifier", 8, 0.9),
        "judged": Response("best_of_n/judge", 4, 0.3),
        "elsewhere": Response("best_of_n/judge/judge=j", 4, 0.3),
        "vote": Response("self_consistency/majority", 7, 0.3),
        "chosen": Response("genselect/split", 6, 0.3),
        "games": Response("tournament", 5, 0.3),
        "written": Response("synthesis/split", 5, 0.3),
        "mixed": None,
        "steps": None,
        "broken": None,
    }
