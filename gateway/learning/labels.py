"""What several sources say of one decision, as one label.

    quality = c_s(v)             v: what source s says of the metric `quality`; c_s: its calibration to a probability of success
    weight  = 1 / max_t p_t      p_t: the probability that source t says something of such a decision; over all that did

What callers say wins over what the gateway finds. Of the gateway's own sources those that read the answer win over those that look at its
form only; of several, the one that labels the most; of several that label as many, the one that thinks the least of it, for an answer must
pass every check. Each decision counts once, and for those that got no label: where the form is looked at always and a judge asked about a
tenth, a judge's word counts once, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from gateway.store.learning import Outcome
from policies.signals.calibration import AS_IT_IS, BELIEVED, Calibration

METRIC: Final = "quality"
"""The only metric that teaches; others are for people."""

FEEDBACK: Final = "feedback"

_LEAST: Final = 1e-3
"""Of a labelling probability; below it a single label would outweigh all others."""


class Label(NamedTuple):
    """quality: probability that the answer was a success. weight: of how many decisions this one stands for."""

    quality: float
    weight: float


class Worth:
    """What the words of sources are worth now: the one way from what is said of a decision to its label, for whoever learns and whoever
    looks back.

    plans_of: (scope, source) -> plans of the scope of which the source said something, two at least where there are. compared: pairs of
    which it is known already that they are of two plans.
    """

    def __init__(
        self,
        calibrations: Mapping[str, Calibration],
        plans_of: Callable[[str, str], Collection[str]],
        compared: AbstractSet[tuple[str, str]] = frozenset(),
    ) -> None:
        self._calibrations = calibrations
        self._plans_of = plans_of
        self._compares: dict[tuple[str, str], bool] = dict.fromkeys(compared, True)

    @property
    def compared(self) -> frozenset[tuple[str, str]]:
        """Scopes and sources that are known to have said something of two plans."""
        return frozenset(pair for pair, does in self._compares.items() if does)

    def label(self, scope: str, outcomes: Sequence[Outcome], *, learnt: bool) -> Label | None:
        """Of a decision of the scope. learnt: something of it was learnt, and so came from a source that counted then."""
        return label(outcomes, self._calibrations, lambda source: learnt or self._does_compare(scope, source))

    def _does_compare(self, scope: str, source: str) -> bool:
        """Else the plan of which the source can speak would be compared by its words with those of which it cannot."""
        pair = scope, source
        if pair not in self._compares:
            self._compares[pair] = len(self._plans_of(scope, source)) > 1
        return self._compares[pair]


def label(
    outcomes: Sequence[Outcome],
    calibrations: Mapping[str, Calibration] | None = None,
    compares: Callable[[str], bool] = lambda _source: True,
) -> Label | None:
    """The label of a decision; None: nothing was said of its quality. compares: whether a source's word counts, which is not asked of
    callers."""
    known = [each for each in outcomes if each.metric == METRIC and each.probability > 0]
    said = [each for each in known if each.source == FEEDBACK or compares(each.source)]
    if not said:
        return None
    *_, quality = min((_rank(each.source), -each.probability, _calibrated(each, calibrations or {})) for each in said)
    return Label(quality, 1.0 / max(_LEAST, min(1.0, max(each.probability for each in said))))


def _rank(source: str) -> int:
    """The least is trusted the most."""
    return 0 if source == FEEDBACK else 2 if source in BELIEVED else 1


def _calibrated(outcome: Outcome, calibrations: Mapping[str, Calibration]) -> float:
    calibration = calibrations.get(outcome.source) or BELIEVED.get(outcome.source, AS_IT_IS)
    return calibration(outcome.value)
