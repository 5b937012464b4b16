"""Plans drawn in fixed proportions: an A/B split, a canary by hand, or uniform logging for off-policy evaluation.

p(a) = w_a / sum_b w_b,   w_b >= 0
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policies.values.plan import Plan


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """weights: plan name -> weight; a plan that is not named has weight 0. Empty: all plans alike."""

    weights: dict[str, float] = {}


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    found = [f"`weights` names `{name}`, which is not among the plans" for name in params.weights if name not in plans]
    found += [f"the weight of `{name}` is negative or not finite" for name, w in params.weights.items() if not 0 <= w < 1e300]
    if params.weights and not found and sum(params.weights.values()) <= 0:
        found.append("no plan has a positive weight")
    return found


def propensities(params: Params, plans: Sequence[Plan]) -> tuple[float, ...]:
    """The weights, normalised over the plans at hand."""
    if not params.weights:
        return (1.0 / len(plans),) * len(plans)
    weights = [params.weights.get(plan.name, 0.0) for plan in plans]
    total = sum(weights)
    return tuple(w / total for w in weights) if total > 0 else (1.0 / len(plans),) * len(plans)
