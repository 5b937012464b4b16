"""An alarm per plan that goes off when its quality falls below a reference by more than a margin, whenever that happens.

H0 of a plan:  E[q | past] >= m at every observation,   m = reference - margin
A_t(j) = (A_{t-1}(j) + g_{t-1}) (1 + b_j (m - q_t) / (1 - m)),   g_k = 1 / ((k + 1) (k + 2)),  t = 1, 2, ...
E_t    = mean_j A_t(j) + 1 / (t + 1)                             fires when E_t >= plans / alpha

For each k a bet against H0 starts after k observations with the capital g_k, and those add up to 1; E_t is what all of them hold
together, with what has not been staked. It is an e-process (Ville; a mixture over the time of the change as in Shin, Ramdas and Rinaldo
2023), so with probability >= 1 - alpha no plan whose quality is at least m at all times ever raises a false alarm. A change after k good
observations is found nearly as fast as one at the beginning: it costs log((k + 1)(k + 2)) of evidence.

Observations count in the order in which they come. The first label of a decision counts, later corrections do not; what has fired has
fired, until a new state is begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policies.values.outcome import Observation

Array = npt.NDArray[np.float64]

BETS: Array = 0.9 * 2.0 ** (-np.arange(12.0) / 2)
# Far above every threshold; beyond it a capital would overflow.
FULL = 1e200


@dataclass(frozen=True)
class State:
    """capital: (plans, bets), A. seen: (plans,), t. peak: (plans,), the largest E so far."""

    capital: Array
    seen: npt.NDArray[np.int64]
    peak: Array


class Alarm:
    """references: expected quality by plan name, 0 to 1; a plan that is not named is not watched. margin: how far below is still all right.

    alpha: how likely any false alarm is, over all plans and all time. Raises ValueError where nothing could be below.
    """

    def __init__(self, references: Mapping[str, float], margin: float = 0.05, alpha: float = 0.01) -> None:
        if not 0 < alpha < 1:
            raise ValueError("`alpha` must lie between 0 and 1")
        for name, reference in references.items():
            if not 0 < reference - margin < 1:
                raise ValueError(f"the reference of `{name}` minus the margin must lie between 0 and 1")
        self._least = {name: reference - margin for name, reference in references.items()}
        self._rows = {name: row for row, name in enumerate(references)}
        self.threshold = len(references) / alpha

    def empty(self) -> State:
        """Nothing was observed."""
        plans = len(self._rows)
        return State(np.zeros((plans, len(BETS))), np.zeros(plans, np.int64), np.ones(plans))

    def fold(self, state: State, observations: Sequence[Observation]) -> State:
        """What is known after these, too, in their order."""
        capital, seen, peak = state.capital.copy(), state.seen.copy(), state.peak.copy()
        for each in observations:
            row = self._rows.get(each.plan)
            if row is None or each.quality is None or each.before is not None:
                continue
            least = self._least[each.plan]
            count = float(seen[row])
            staked = 1.0 / ((count + 1.0) * (count + 2.0))
            capital[row] = np.minimum((capital[row] + staked) * (1.0 + BETS * (least - each.quality) / (1.0 - least)), FULL)
            seen[row] += 1
            peak[row] = max(peak[row], float(capital[row].mean()) + 1.0 / (count + 2.0))
        return State(capital, seen, peak)

    def fired(self, state: State) -> tuple[str, ...]:
        """Plans that have fallen below."""
        return tuple(name for name, row in self._rows.items() if state.peak[row] >= self.threshold)

    def statistics(self, state: State) -> dict[str, Any]:
        """Of each plan: observations, the largest e-value so far and the one that it takes, and whether it has fired."""
        return {
            name: {
                "observations": int(state.seen[row]),
                "least": self._least[name],
                "evidence": float(state.peak[row]),
                "threshold": self.threshold,
                "fired": bool(state.peak[row] >= self.threshold),
            }
            for name, row in self._rows.items()
        }
