"""A decision as it is told: a JSON object, the same for one that was tried and one that was carried out.

What nobody estimated, excluded or priced is null or empty in it, never made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.serving.call import Receipt, Tried, Tries
from gateway.serving.choice import Decided
from gateway.serving.ids import minted_at
from gateway.serving.state import RealModel, State, VirtualModel
from gateway.store.queries import Found, Record

Told = dict[str, Any]


def of_receipt(state: State, receipt: Receipt) -> Told:
    """What was decided for a request, of which nothing has been carried out."""
    route = state.names.get(receipt.requested_model or "")
    choice = receipt.choice
    return {
        **_head(receipt.decision_id, minted_at(receipt.decision_id), receipt.requested_model, receipt.policy, receipt.config_hash),
        **(_weighed(route, choice.decided) if choice is not None else {}),
        "dry_run": True,
        "snapshot": None if choice is None or not choice.snapshot else str(choice.snapshot),
        "feature_version": None if choice is None else choice.feature_version,
        **({"candidates": _alone(route)} if choice is None else {}),
        "chosen": receipt.plan,
        "propensity": receipt.propensity,
        "explored": receipt.explored,
        "served_model": None,
        "calls": [],
        "usage": {},
        "cost": 0,
        "latency_ms": None,
        "outcome": [],
        "status": None,
        "result": None,
        "code": None,
        "request_id": receipt.request_id,
        "tags": receipt.tags or {},
    }


def of_record(state: State, found: Found) -> Told:
    """What was decided for a request that has ended, and what came of it."""
    row = found.decision
    latency_s: float = row["latency_s"]
    return {
        **_head(row["id"], row["created"], row["requested_model"], row["policy"], row["config_hash"]),
        "policy": {"name": row["policy"], "version": row["policy_version"]},
        "feature_version": row["feature_version"],
        **_known(state, row),
        "chosen": row["plan"],
        "propensity": row["propensity"],
        "explored": bool(row["explored"]),
        "served_model": row["served_model"],
        "calls": [_call(each) for each in found.calls],
        **_tried(row),
        "usage": usage(row),
        "cost": row["cost_usd"],
        "latency_ms": latency_s * 1e3,
        "outcome": [{name: each[name] for name in ("metric", "value", "source", "labelling_probability")} for each in found.outcomes],
        "status": row["status"],
        "result": row["outcome"],
        "code": row["code"],
        "request_id": row["request_id"],
        "tags": tags(row),
    }


def usage(row: Record) -> Told:
    """The tokens of a row; empty: not known. estimated: they were counted here, for the backend never told."""
    if row["prompt_tokens"] is None:
        return {}
    counts: Told = {name: row[name] for name in ("prompt_tokens", "cached_tokens", "completion_tokens")}
    return counts | {"estimated": bool(row["usage_estimated"])}


def tags(row: Record) -> Told:
    """The labels of a row."""
    return {} if row["tags"] is None else msgspec.json.decode(row["tags"], type=dict[str, str])


def _head(id_: str, created: float, requested: str | None, policy: str, config_hash: str) -> Told:
    return {
        "id": id_,
        "object": "decision",
        "created": int(created),
        "dry_run": False,
        "requested_model": requested,
        "policy": {"name": policy, "version": None},
        "config_hash": config_hash,
        "snapshot": None,
        "feature_version": None,
        "candidates": [],
        "excluded": [],
        "prices": {},
        "runner_up_price": None,
        "shadow": {},
        "fallback": None,
        "strategy_candidates": [],
        "strategy_why": None,
    }


def _alone(route: RealModel | VirtualModel | None) -> list[Told]:
    """A real model is its own only candidate."""
    return [_candidate(None, route.public, "single", 1.0)] if isinstance(route, RealModel) else []


def _weighed(route: RealModel | VirtualModel | None, decided: Decided) -> Told:
    """Candidates, exclusions and prices of a decision that a policy made."""
    plans = {plan.name: plan for plan in route.plans} if isinstance(route, VirtualModel) else {}
    candidates = []
    for each in decided.candidates:
        plan = plans.get(each.plan)
        told = _candidate(each.plan, None, "single", each.probability)
        if plan is not None:
            told |= {"model": plan.model, "strategy": plan.strategy, "reasoning": plan.reasoning, "budget_tokens": plan.budget_tokens}
        told["estimate"] = {
            "quality": each.quality,
            "quality_low": each.low,
            "quality_high": each.high,
            "cost": each.cost,
            "latency_s": each.latency,
            "score": each.score,
        }
        candidates.append(told)
    prices = decided.prices
    return {
        "candidates": candidates,
        "excluded": [{"plan": each.plan, "reason": each.reason} for each in decided.excluded],
        "prices": {"cost": prices.cost, "latency": prices.latency, **prices.parts},
        "runner_up_price": runner_up_price(decided),
        "shadow": dict(decided.shadow),
        "fallback": decided.fallback,
    }


def runner_up_price(decided: Decided) -> float | None:
    """The price of a USD, in quality, at which the second best score would be as high as the best; None: at none.

    s_1 - (l - l0) c_1 = s_2 - (l - l0) c_2    <=>    l = l0 + (s_1 - s_2) / (c_1 - c_2),    s: score at the price l0, c: expected cost
    """
    scored = sorted(((each.score, each.cost) for each in decided.candidates if each.score is not None), key=lambda each: -each[0])
    if len(scored) < 2 or scored[0][1] == scored[1][1]:
        return None
    (first, dear), (second, cheap) = scored[:2]
    price = decided.prices.cost + (first - second) / (dear - cheap)
    return price if price >= 0 else None


def _candidate(plan: str | None, model: str | None, strategy: str, propensity: float) -> Told:
    return {
        "plan": plan,
        "model": model,
        "reasoning": None,
        "strategy": strategy,
        "budget_tokens": None,
        "estimate": None,
        "propensity": propensity,
    }


def _known(state: State, row: Record) -> Told:
    """What was weighed, as the row has it."""
    route = state.names.get(row["requested_model"] or "") if row["config_hash"] == state.hash else None
    if row["decided"] is not None:
        decided = msgspec.json.decode(row["decided"], type=Decided)
        snapshot = row["snapshot"]
        return _weighed(route, decided) | {"snapshot": None if not snapshot else str(snapshot)}
    if row["policy"] == "none" and row["attempts"] == 0:  # it never came to a decision
        return {}
    return {"candidates": _alone(route) or [_candidate(row["plan"], None, row["strategy"], row["propensity"])]}


def _tried(row: Record) -> Told:
    """A strategy's candidates; of one call there are none."""
    if row["tried"] is None:
        return {"strategy_candidates": [], "strategy_why": None}
    tries = msgspec.json.decode(row["tried"], type=Tries)
    return {"strategy_candidates": tried(tries.candidates), "strategy_why": tries.why}


def tried(candidates: Sequence[Tried]) -> list[Told]:
    """A strategy's candidates."""
    return [
        {
            "index": each.index,
            "score": each.score,
            "won": each.outcome == "won",
            "outcome": each.outcome,
            "finish_reason": each.finish,
            "tokens": each.tokens,
            "cost": each.cost,
        }
        for each in candidates
    ]


def _call(row: Record) -> Told:
    return {
        "purpose": row["purpose"],
        "backend": row["backend"],
        "model": row["model"],
        "status": row["status"],
        "prompt_tokens": row["prompt_tokens"],
        "cached_tokens": row["cached_tokens"],
        "completion_tokens": row["completion_tokens"],
        "cost": row["cost_usd"],
        "start_ms": row["start_ms"],
        "end_ms": row["end_ms"],
    }
