"""What several sources say of one decision, as one label.

    quality = c_s(v)        v: what source s says of the metric `quality`; c_s: its calibration to a probability of success
    weight  = 1 / p_s       p_s: the probability that s says something of such a decision

What callers say wins over what the gateway finds; of several other sources, the one that labels the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gateway.store.learning import Outcome

METRIC: Final = "quality"
"""The only metric that teaches; others are for people."""

FEEDBACK: Final = "feedback"

_LEAST: Final = 1e-3
"""Of a labelling probability; below it a single label would outweigh all others."""


class Calibration(NamedTuple):
    """A straight line: the probability of success where a source says 0, and where it says 1."""

    at_0: float = 0.0
    at_1: float = 1.0

    def __call__(self, value: float) -> float:
        """Within [0, 1]."""
        return min(1.0, max(0.0, self.at_0 + value * (self.at_1 - self.at_0)))


class Label(NamedTuple):
    """quality: probability that the answer was a success. weight: of how many decisions this one stands for."""

    quality: float
    weight: float


AS_IT_IS: Final = Calibration()


def label(outcomes: Sequence[Outcome], calibrations: Mapping[str, Calibration] | None = None) -> Label | None:
    """The label of a decision; None: nothing was said of its quality."""
    said = [outcome for outcome in outcomes if outcome.metric == METRIC and outcome.probability > 0]
    if not said:
        return None
    chosen = min(said, key=lambda outcome: (outcome.source != FEEDBACK, -outcome.probability, outcome.source))
    calibrated = (calibrations or {}).get(chosen.source, AS_IT_IS)(chosen.value)
    return Label(calibrated, 1.0 / max(_LEAST, min(1.0, chosen.probability)))
