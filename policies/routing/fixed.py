"""Always the same plan.

p(a) = 1 if a = plan else 0
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policies.values.plan import Plan


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """plan: the name of the plan that serves; by default the first."""

    plan: str | None = None


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    if params.plan is not None and params.plan not in plans:
        return [f"`plan` names `{params.plan}`, which is not among the plans"]
    return []


def propensities(params: Params, plans: Sequence[Plan]) -> tuple[float, ...]:
    """One-hot at the configured plan."""
    chosen = params.plan if params.plan is not None else plans[0].name
    return tuple(1.0 if plan.name == chosen else 0.0 for plan in plans)
