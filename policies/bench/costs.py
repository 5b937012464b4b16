"""What a decision costs: CPU time of policies and encoders, and size of what policies remember.

CPU time is the process' own, over thousands of calls, the least of several rounds. Every decision of a policy is on another request; the
features are there already. Every text that is encoded is another one, so nothing is remembered of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policies import registry
from policies.bench import heads
from policies.bench.features import asked
from policies.encoders import encoder
from policies.policy import Encoder, Policy, decide
from policies.states import arrays
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Prices, Situation

PLANS: Final = tuple(Plan(f"plan-{index}", f"model-{index}") for index in range(8))
TOKENS: Final = 200
_ROUNDS: Final = 5
_BATCH: Final = 1_000
_WORST, _STEP = 0.4, 0.05
"""Quality of the first plan, and how much better each next one is."""
_DIMS: Final[Mapping[str, int]] = {"hashed": 32, "static": 64}
"""Numbers of a block that is made up."""
_RULES: Final[Mapping[str, Any]] = {
    "signals": {
        "code": {"keywords": ["traceback", "compile", "function"]},
        "long": {"tokens": {"above": 2_000}},
        "tools": {"tools": True},
    },
    "rules": [
        {"when": {"all": ["code", "tools"]}, "plans": ["plan-7"]},
        {"when": {"any": ["long", {"not": "code"}]}, "weights": {"plan-0": 9, "plan-1": 1}},
    ],
    "otherwise": "plan-2",
}


@dataclass(frozen=True)
class Subject:
    """A policy that is measured, as it would be configured."""

    name: str
    type: str
    params: Mapping[str, Any] = field(default_factory=dict)


SUBJECTS: Final = (
    Subject("fixed", "fixed"),
    Subject("weighted", "weighted", {"weights": {plan.name: index + 1 for index, plan in enumerate(PLANS)}}),
    Subject("random", "random"),
    Subject("best_single", "best_single"),
    Subject("length", "length"),
    Subject("rules", "rules", _RULES),
    Subject("neighbors", "neighbors", {"encoder": "static"}),
    Subject("linucb", "linucb", {"features": ["hashed"]}),
    Subject("linucb_plain", "linucb"),
    Subject("thompson", "thompson", {"features": ["hashed"]}),
    Subject("thompson_plain", "thompson"),
)


@dataclass(frozen=True)
class Remembered:
    """Bytes of a state after so many outcomes, and after a hundred times as many."""

    few: int
    many: int


def decide_us(subject: Subject, decisions: int) -> float:
    """Microseconds of CPU for a decision among 8 plans, after 4,000 outcomes."""
    random = np.random.default_rng(0)
    policy = built(subject)
    state = _folded(policy, policy.algorithm.empty(), random, 0, 4 * _BATCH)
    situations = [_situation(policy, random, index) for index in range(decisions)]
    ids = [f"bench-{index}" for index in range(decisions)]

    def once() -> None:
        for situation, decision_id in zip(situations, ids, strict=True):
            decide(policy, state, situation, decision_id)

    return _least(once) / decisions * 1e6


def remembered(subject: Subject, outcomes: int) -> Remembered:
    """How a state grows, from `outcomes` / 100 to `outcomes`."""
    random = np.random.default_rng(0)
    policy = built(subject)
    state = _folded(policy, policy.algorithm.empty(), random, 0, outcomes // 100)
    few = size(state)
    return Remembered(few, size(_folded(policy, state, random, outcomes // 100, outcomes)))


def size(state: Any) -> int:
    """Bytes of a state's arrays."""
    return sum(array.nbytes for array in arrays(state).values())


def encode_us(name: str, prompts: Sequence[str], texts: int) -> float:
    """Microseconds of CPU for a text of some 200 tokens by this encoder. prompts: whose words they are made of. Raises ValueError where
    the encoder cannot be had."""
    made = encoder(name)
    words = " ".join(prompts).split()
    width = round(TOKENS / 1.3)  # tokens of a word, in English
    random = np.random.default_rng(0)

    def request(start: int) -> Any:
        return asked(" ".join(words[start : start + width]))

    made.encode(request(0))
    used = []
    for _ in range(_ROUNDS):
        requests = [request(start) for start in random.integers(1, max(2, len(words) - width), texts)]
        begin = time.process_time()
        for each in requests:
            made.encode(each)
        used.append(time.process_time() - begin)
    return min(used) / texts * 1e6


def built(subject: Subject) -> Policy:
    """The policy over 8 plans."""

    def encoder_of(name: str) -> Encoder:
        return heads.Given(name, _DIMS[name]) if name in _DIMS else encoder(name)

    specs = {subject.name: registry.Spec(type=subject.type, params=subject.params, floor=0.02)}
    return registry.policy(subject.name, specs, PLANS, PLANS[0].name, encoder_of)


def _situation(policy: Policy, random: np.random.Generator, index: int) -> Situation:
    candidates = tuple(Candidate(plan, row, 1e-4 * (row + 1), 0.5) for row, plan in enumerate(PLANS))
    return Situation(candidates, _blocks(policy, random), Prices(cost=10.0), unit=f"u{index}", now=2e6)


def _blocks(policy: Policy, random: np.random.Generator) -> dict[str, npt.NDArray[np.float32]]:
    """Features of some request: made up where the encoder is, else of a text."""
    found = {}
    for each in policy.algorithm.encoders:
        if isinstance(each, heads.Given):
            vector = random.standard_normal(each.dim)
            found[each.name] = (vector / np.linalg.norm(vector)).astype(np.float32)
        else:
            found[each.name] = each.encode(asked("Why does this function not compile? " * int(random.integers(1, 9))))
    return found


def _folded(policy: Policy, state: Any, random: np.random.Generator, begin: int, end: int) -> Any:
    """After outcomes begin ... end - 1, some of each plan, in batches."""
    shown = [_blocks(policy, random) for _ in range(64)]
    for start in range(begin, end, _BATCH):
        stop = min(start + _BATCH, end)
        plans = random.integers(0, len(PLANS), stop - start)
        good = (random.random(stop - start) < _WORST + _STEP * plans).tolist()
        state = policy.algorithm.fold(
            state,
            [
                Observation(f"o{row}", PLANS[plan].name, shown[row % len(shown)], float(quality), at=1e6 + row)
                for row, plan, quality in zip(range(start, stop), plans.tolist(), good, strict=True)
            ],
        )
    return state


def _least(once: Callable[[], None]) -> float:
    """Seconds of CPU of the fastest round."""
    once()
    used = []
    for _ in range(_ROUNDS):
        begin = time.process_time()
        once()
        used.append(time.process_time() - begin)
    return min(used)
