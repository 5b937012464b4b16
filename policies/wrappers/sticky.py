"""A conversation stays with its plan until there is reason to leave it.

s'(current) = s + stay_bias + prefix_cache_weight * mass * warmth * dear + tool_loop_bias * [tool loop]
s'(other)   = s - handoff(current, other) - switch_margin - switch_history_penalty * min(switches, 5)

mass   = tokens / (tokens + half_tokens)                      share of the work that the session's past is, 0 to 1
warmth = max(0, 1 - idle / cache_ttl_s)                       how likely a replica still has it cached, 0 to 1
dear   = min(cost(current) / cheapest candidate's cost, 3)    what is dear to read is dear to read again; 1 where costs are not known

All in units of quality; after the session-aware scores of vLLM Semantic Router (arXiv 2603.21354). Once the session has been idle for
cache_ttl_s, nothing is lost by leaving: every term is 0 and it is decided anew, as it is where the current plan is not a candidate (its
backend is down, the prompt outgrew it). While a tool's answer is awaited the plan never changes as long as it is a candidate, however long
the tool took. No turn that may stay is explored on. A policy that splits by chance and not by score (`weighted`) is not drawn from again:
what it could have drawn, stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from policies.policy import Kit, RoutingPolicy
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation, Standing
from policies.wrappers.base import Held, Wrapper, only, position, quiet

MOST_SWITCHES = 5
DEAREST = 3.0


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Biases and penalties in units of quality, see the module. half_tokens: tokens at which the past is half of the work. handoffs:
    penalties that differ from `handoff`, by the plan that is left, then the one that is taken."""

    stay_bias: float = 0.02
    prefix_cache_weight: float = 0.03
    tool_loop_bias: float = 0.1
    handoff: float = 0.02
    handoffs: dict[str, dict[str, float]] = {}
    switch_margin: float = 0.01
    switch_history_penalty: float = 0.01
    cache_ttl_s: float = 300.0
    half_tokens: float = 2000.0


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What of the parameters cannot work with these plans."""
    found = [f"`{name}` is negative or not finite" for name, value in _numbers(params).items() if not 0 <= value < 1e300]
    found += [f"`{name}` must be more than 0" for name in ("cache_ttl_s", "half_tokens") if getattr(params, name) == 0]
    named = {name for left, taken in params.handoffs.items() for name in (left, *taken)}
    return found + [f"`handoffs` names `{name}`, which is not among the plans" for name in sorted(named - set(plans))]


def _numbers(params: Params) -> dict[str, float]:
    numbers = {name: value for name in params.__struct_fields__ if isinstance(value := getattr(params, name), float)}
    return numbers | {f"handoffs.{left}.{taken}": cost for left, row in params.handoffs.items() for taken, cost in row.items()}


def build(params: Params, inner: RoutingPolicy[Any], _plans: Sequence[Plan], _kit: Kit) -> Sticky:
    """The policy, wrapped."""
    return Sticky(inner, params)


class Sticky(Wrapper):
    """inner: the policy inside."""

    def __init__(self, inner: RoutingPolicy[Any], params: Params) -> None:
        super().__init__(inner)
        self._params = params

    def estimate(self, state: Held, situation: Situation) -> Scores:
        """What the policy inside thinks, with the terms of staying and leaving in the scores."""
        stays = self._warm(situation) is not None
        scores = self.inner.estimate(state.inner, quiet(situation) if stays or situation.tool_loop else situation)
        if not stays:
            return scores
        terms = self.terms(situation)
        adjusted = (score + sum(terms[each.plan.name].values()) for score, each in zip(scores.score, situation.candidates, strict=True))
        return msgspec.structs.replace(scores, score=tuple(adjusted))

    def terms(self, situation: Situation) -> dict[str, dict[str, float]]:
        """What is added to each candidate's score, by the plan's name and the term's; empty where the session has no plan to stay with."""
        standing = situation.standing
        if standing is None or self._warm(situation) is None:
            return {}
        return {
            each.plan.name: self._stay(standing, situation) if each.plan.name == standing.plan else self._leave(standing, each.plan.name)
            for each in situation.candidates
        }

    def _warm(self, situation: Situation) -> int | None:
        """Where the plan stands that the session has reason to stay with; None: there is none."""
        standing = situation.standing
        if standing is None or standing.idle_s >= self._params.cache_ttl_s:
            return None
        return position(situation, standing.plan)

    def _stay(self, standing: Standing, situation: Situation) -> dict[str, float]:
        p = self._params
        mass = standing.tokens / (standing.tokens + p.half_tokens)
        warmth = 1.0 - max(standing.idle_s, 0.0) / p.cache_ttl_s
        costs: Mapping[str, float] = {each.plan.name: each.cost for each in situation.candidates}
        cheapest = min(costs.values())
        dear = min(costs[standing.plan] / cheapest, DEAREST) if cheapest > 0 else 1.0
        return {
            "stay": p.stay_bias,
            "cache": p.prefix_cache_weight * mass * warmth * dear,
            "tool_loop": p.tool_loop_bias if situation.tool_loop else 0.0,
        }

    def _leave(self, standing: Standing, plan: str) -> dict[str, float]:
        p = self._params
        return {
            "handoff": -p.handoffs.get(standing.plan, {}).get(plan, p.handoff),
            "margin": -p.switch_margin,
            "history": -p.switch_history_penalty * min(standing.switches, MOST_SWITCHES),
        }

    def propensities(self, state: Held, situation: Situation, scores: Scores) -> Odds:
        """Those of the policy inside, on the adjusted scores; one-hot at the current plan where it cannot be left, or need not."""
        current = None if situation.standing is None else position(situation, situation.standing.plan)
        stays = self._warm(situation) is not None
        calm = stays or situation.tool_loop
        odds = self.inner.propensities(state.inner, quiet(situation) if calm else situation, scores)
        if current is not None and (situation.tool_loop or (stays and odds.drawn[current] > 0)):
            return Odds(only(current, len(situation.candidates)), explores=False, shadow=odds.shadow)
        return msgspec.structs.replace(odds, explores=False) if calm else odds
