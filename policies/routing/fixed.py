"""Always the same plan.

p(a) = 1 if a = plan else 0         where the plan is not eligible: the baseline in its stead, else the first candidate
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policies.policy import Kit
from policies.routing.base import Stateless, favourite
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """plan: the name of the plan that serves; by default the baseline."""

    plan: str | None = None


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    if params.plan is not None and params.plan not in plans:
        return [f"`plan` names `{params.plan}`, which is not among the plans"]
    return []


def build(params: Params, _plans: Sequence[Plan], kit: Kit) -> Fixed:
    """The policy."""
    return Fixed(params.plan or kit.baseline, kit.baseline)


class Fixed(Stateless):
    """plan: its name. baseline: the name of who serves where that may not; empty: the first candidate."""

    def __init__(self, plan: str, baseline: str = "") -> None:
        self._plan = plan
        self._baseline = baseline

    def propensities(self, _state: None, situation: Situation, _scores: Scores) -> Odds:
        """One-hot at the plan."""
        odds = tuple(1.0 if each.plan.name == self._plan else 0.0 for each in situation.candidates)
        return Odds(odds if 1.0 in odds else favourite(odds, situation, self._baseline))
