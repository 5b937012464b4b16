"""What is learnt of a decision, as policies take it; or why nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from gateway.learning.blocks import unpacked
from gateway.learning.labels import METRIC, Label
from gateway.learning.scopes import Scope
from gateway.serving.choice import Weighed
from gateway.store.learning import Facts, Taught
from policies.policy import needed
from policies.values.outcome import Observation

Reason = Literal[
    "never_came",
    "relayed",
    "unknown_policy",
    "stateless",
    "told_not_to",
    "failed",
    "unknown_plan",
    "other_features",
    "unlabelled",
    "one_plan",
    "nothing_new",
    "refused",
]
"""Why nothing is learnt of what was said of a decision.

never_came: it is not there. relayed: no policy chose. unknown_policy: none of that name has plans of that virtual model. stateless: the
policy learns nothing. told_not_to: by the caller. failed: the call failed, was cut or cancelled, which says nothing of the plan's quality.
unknown_plan: there is none of that name any more. other_features: the policy reads others now, or they were never made. unlabelled: nothing
was said of its quality. one_plan: something was, but by sources that say nothing of any other plan, so that it compares nothing.
nothing_new: all of it was known. refused: the policy could not take it, see the log.
"""

_OK: Final = "ok"


class _Decided(msgspec.Struct, frozen=True):
    candidates: tuple[Weighed, ...] = ()


def unfit(scope: Scope, facts: Facts) -> Reason | None:
    """Why the policy learns nothing of the decision, whatever is said of it."""
    if not scope.learns:
        return "stateless"
    if not facts.learn:
        return "told_not_to"
    if facts.outcome != _OK:
        return "failed"
    return "unknown_plan" if facts.plan not in scope.plans else None


def taught(facts: Facts, label: Label | None, before: tuple[float, float] | None) -> Taught | Reason:
    """What is new. before: quality and weight that are in the policy's state already."""
    if label is None and before is None:
        return "unlabelled"
    if label is None and before is not None:
        return Taught(facts.id, METRIC, None, before[1], *before)
    assert label is not None
    if before is None:
        return Taught(facts.id, METRIC, label.quality, label.weight)
    return "nothing_new" if label == before else Taught(facts.id, METRIC, label.quality, label.weight, *before)


def observations(scope: Scope, row: Taught, facts: Facts) -> Sequence[Observation]:
    """The row for `fold`: one, or two where the weight changed, for sums take back what was added with its own weight.

    Raises ValueError where the policy reads features that are not there.
    """
    blocks = unpacked(facts.features, facts.feature_version)
    for encoder in needed(scope.algorithm):
        if encoder.name not in blocks or len(blocks[encoder.name]) != encoder.dim:
            raise ValueError(f"there are no features `{encoder.name}:{encoder.dim}`")

    baseline = _probability(scope.baseline, facts.decided)

    def one(quality: float | None, before: float | None, weight: float) -> Observation:
        return Observation(
            decision_id=facts.id,
            plan=facts.plan or "",
            blocks=blocks,
            quality=quality,
            at=facts.at,
            before=before,
            weight=weight,
            propensity=facts.propensity,
            unit=facts.unit,
            cost=facts.cost,
            latency=facts.latency,
            tenant=facts.tenant,
            baseline=baseline,
        )

    if row.quality is None:
        return (one(None, row.before, row.weight_before),)
    if row.before is not None and row.weight != row.weight_before:
        return one(None, row.before, row.weight_before), one(row.quality, None, row.weight)
    return (one(row.quality, row.before, row.weight),)


def _probability(plan: str, decided: str | None) -> float:
    """That of the plan, as it was decided; 0 where it was no candidate."""
    if not decided:
        return 0.0
    candidates = msgspec.json.decode(decided, type=_Decided).candidates
    return next((each.probability for each in candidates if each.plan == plan), 0.0)
