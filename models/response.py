"""Response curves: what becomes of a model's quality p when it is asked N times and one of the answers is chosen.

    R(p, N) = p + rho h_N(p)                                  rho: efficiency of who chooses, the same for all models and N
    h_N(p)  = (1 - p)(1 - prod_{j = 2..N} (1 - p / j))        headroom: how much more often one of N answers is good than the first

That model, strategy and N are chosen together is from BEST-Route (Ding et al. 2025, arXiv 2506.22716); the form of the curve is
ours. Questions are not alike: where all of them had the chance p, the headroom would be 1 - (1 - p)^N - p, and rho would rise with N.
With chances from Beta(p, 1 - p) try j is good with the chance p / j where all before were not, which is the product above. With it rho
hardly moves with N: over 3 to 20 simulated answers by 0.1 at most, while from profile to profile it is 0.12 to 0.38 for votes and 0.7 to
1.0 for an exact check; on HumanEval 1.0, on two sets of the Game of 24 0.9 and, far off, 1.9 to 2.7 (`trilemma bench decoding`).
0: the choice is no better than chance. Below 0: it harms.
"""

from __future__ import annotations

from dataclasses import dataclass

CHECKED = 0.9
"""Efficiency that is expected of an exact check."""
VOTED = 0.3
"""Of all else: what votes have on simulated profiles. That judges and log-probabilities are like them is a guess."""


@dataclass(frozen=True)
class Response:
    """The curve of a plan. kind: who chooses; plans of one kind share an efficiency. tries: N, at least 1. efficiency: what is expected
    before anything is known."""

    kind: str
    tries: int
    efficiency: float = VOTED


ONCE = Response("", 1)
"""Of a plain call: p itself."""


def headroom(p: float, tries: int) -> tuple[float, float]:
    """h_N at p, within [0, 1], and its slope there."""
    fails, bend = 1.0, 0.0
    for j in range(2, tries + 1):
        fails *= 1.0 - p / j
        bend += 1.0 / (j - p)
    return (1.0 - p) * (1.0 - fails), fails - 1.0 + (1.0 - p) * fails * bend
