"""Every candidate alike: what off-policy evaluation likes best, and the floor that any policy must beat.

p(a) = 1 / |A|
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from policies.policy import Kit
from policies.routing.base import Stateless
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """There are none."""


def problems(_params: Params, _plans: Sequence[str]) -> list[str]:
    """There is nothing that cannot work."""
    return []


def build(_params: Params, _plans: Sequence[Plan], _kit: Kit) -> Uniform:
    """The policy."""
    return Uniform()


class Uniform(Stateless):
    """Draws evenly from the candidates."""

    def propensities(self, _state: None, situation: Situation, _scores: Scores) -> Odds:
        """1 / |A| each."""
        number = len(situation.candidates)
        return Odds((1.0 / number,) * number)
