"""What came of a decision, as policies learn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from policies.values.situation import Vector


class Observation(msgspec.Struct, frozen=True):
    """One decision and how good its answer was.

    plan: that which was chosen (credit follows the choice, whoever served in its stead). blocks: the features that were decided on.
    quality: calibrated probability of success, 0 to 1; None: taken back (erased, or withdrawn). before: the quality that was folded for
    this decision until now; None: none was. So a first label is (q, None), a correction (q, before), a retraction (None, before). weight: 1
    / probability that such a decision is labelled, 1 if all are. propensity: marginal probability of the choice. at: when it was decided,
    seconds since 1970. unit: see Situation. cost: USD. latency: seconds. baseline: marginal probability that the baseline plan had; 0: it
    could not be drawn, or that is not known.
    """

    decision_id: str
    plan: str
    blocks: Mapping[str, Vector]
    quality: float | None
    at: float
    before: float | None = None
    weight: float = 1.0
    propensity: float = 1.0
    unit: str = ""
    cost: float = 0.0
    latency: float = 0.0
    tenant: str = ""
    baseline: float = 0.0

    @property
    def gain(self) -> float:
        """What is added to sums of quality: weight * (quality - before)."""
        return self.weight * ((self.quality or 0.0) - (self.before or 0.0))

    @property
    def count(self) -> int:
        """What is added to numbers of observations: 1 for a new one, 0 for a correction, -1 for a retraction."""
        return (self.quality is not None) - (self.before is not None)
