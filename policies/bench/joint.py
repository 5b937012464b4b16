"""Model, strategy and number of answers chosen together, on line: policies that learn with response curves, and without.

    plans      3 simulated models (answers.py), each with 1, 4, 8 and 16 answers, of which a check or a vote chooses one
    worth      right or not, less a price for each answer, which costs more of one model than of another
    regret     mean worth of the best plan, less that of the chosen one; means of all orders' questions
    apart      each plan an arm of its own        level: plans of a model share its level        curves: models/response.py

Every order has questions of its own, and all policies and ways have the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from models.response import Response
from policies.bench import answers, voting
from policies.offpolicy.simulate import Setting, simulate
from policies.policy import Policy
from policies.routing.linucb import LinUCB
from policies.routing.linucb import Params as LinUCBParams
from policies.routing.thompson import Params as ThompsonParams
from policies.routing.thompson import Thompson
from policies.values.plan import Plan
from policies.values.situation import Prices

Array = npt.NDArray[np.float64]

ANSWERS: Final = (1, 4, 8, 16)
WAYS: Final = ("apart", "level", "curves")
POLICIES: Final[Mapping[str, Callable[[list[Plan]], LinUCB | Thompson]]] = {
    "linucb": lambda plans: LinUCB(LinUCBParams(), plans),
    "thompson": lambda plans: Thompson(ThompsonParams(), plans),
}
_FLOOR: Final = 0.02
_BATCH: Final = 25


@dataclass(frozen=True)
class World:
    """models: profile -> what one of its answers costs. checked: an exact check chooses, else a vote. price: of a unit of cost."""

    name: str
    models: Mapping[str, float]
    checked: bool
    price: float

    @property
    def costs(self) -> Array:
        """Of each plan."""
        return np.array([cost * n for cost in self.models.values() for n in ANSWERS])

    def plans(self, way: str) -> list[Plan]:
        """In the order of the models and numbers of answers."""
        return [_plan(name, n, self.checked, way) for name in self.models for n in ANSWERS]

    def outcomes(self, questions: int, seed: int) -> Array:
        """Whether each plan is right, (questions, plans)."""
        columns = []
        for number, name in enumerate(self.models):
            rng = np.random.default_rng([seed, number])
            made = answers.simulate(answers.PROFILES[name], questions, max(ANSWERS), rng)
            leads = voting.course(made, max(ANSWERS)).right
            chances = [made.right[:, :n].any(axis=1) if self.checked else leads[:, n] for n in ANSWERS]
            columns += [rng.random(questions) < chance for chance in chances]
        return np.array(columns, dtype=np.float64).T


WORLDS: Final = (
    World("check", {"weak": 1.0, "mid": 2.0, "scattered": 0.5}, True, 0.012),
    World("vote", {"weak": 1.0, "mid": 2.0, "maths": 0.5}, False, 0.004),
)


@dataclass(frozen=True)
class Learned:
    """Of a world, a policy and a way of sharing, each (orders, requests). regret: of each request. best: whether the best plan had it."""

    world: str
    policy: str
    way: str
    regret: Array
    best: npt.NDArray[np.bool_]

    def mean(self, requests: int | None = None) -> Array:
        """Regret of a request among the first so many, or all, (orders,)."""
        found: Array = self.regret[:, :requests].mean(axis=1)
        return found

    def share(self, requests: int | None = None) -> float:
        """Of these that the best plan had."""
        return float(self.best[:, :requests].mean())


def learned(world: World, requests: int, orders: int) -> list[Learned]:
    """Every policy in every way."""
    outcomes = [world.outcomes(requests, seed) for seed in range(orders)]
    worth = np.mean([each.mean(axis=0) for each in outcomes], axis=0) - world.price * world.costs
    found = []
    for name, build in POLICIES.items():
        for way in WAYS:
            plans = world.plans(way)
            chosen = []
            for seed, rewards in enumerate(outcomes):
                policy = Policy(name, build(plans), _FLOOR, seed)
                setting = Setting(seed, batch=_BATCH, prices=Prices(world.price))
                chosen.append(simulate(policy, rewards, plans, setting, costs=np.broadcast_to(world.costs, rewards.shape)).arms)
            arms = np.array(chosen)
            found.append(Learned(world.name, name, way, worth.max() - worth[arms], arms == worth.argmax()))
    return found


def _plan(model: str, n: int, checked: bool, way: str) -> Plan:
    """As a configuration would have it."""
    name = f"{model}-{n}"
    if n == 1:
        return Plan(name, name if way == "apart" else model)
    response = Response("check", n, 0.9) if checked else Response("vote", n - 1)
    return Plan(name, name if way == "apart" else model, f"{n} answers", response=response if way == "curves" else None)
