"""A decision as it is told: a JSON object, the same for one that was tried and one that was carried out.

What nobody estimated, excluded or priced is null or empty in it, never made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.serving.call import Receipt
from gateway.serving.ids import minted_at
from gateway.serving.state import RealModel, State, VirtualModel
from gateway.store.queries import Found, Record
from gateway.wire.errors import ApiError
from policies.draw import draw

Told = dict[str, Any]


def of_receipt(state: State, receipt: Receipt) -> Told:
    """What was decided for a request, of which nothing has been carried out."""
    route = state.names.get(receipt.requested_model or "")
    return {
        **_head(receipt.decision_id, minted_at(receipt.decision_id), receipt.requested_model, receipt.policy, receipt.config_hash),
        "dry_run": True,
        "candidates": [] if route is None else _candidates(route, receipt.probabilities),
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
        "candidates": _known_candidates(state, row),
        "chosen": row["plan"],
        "propensity": row["propensity"],
        "explored": bool(row["explored"]),
        "served_model": row["served_model"],
        "calls": [_call(each) for each in found.calls],
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
        "excluded": [],
        "prices": {},
        "runner_up_price": None,
        "strategy_candidates": [],
    }


def _candidates(route: RealModel | VirtualModel, probabilities: Sequence[float]) -> list[Told]:
    if isinstance(route, RealModel):
        return [_candidate(None, route.public, "single", 1.0)]
    each = zip(route.plans, route.models, probabilities, strict=True)
    return [_candidate(plan.name, model.public, plan.strategy, propensity) for plan, model, propensity in each]


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


def _known_candidates(state: State, row: Record) -> list[Told]:
    """All of them, where the configuration that decided is still in use: the draw is done again. Else the one that was drawn."""
    route = state.names.get(row["requested_model"] or "") if row["config_hash"] == state.hash else None
    chosen = [_candidate(row["plan"], None, row["strategy"], row["propensity"])]
    if row["policy"] == "none":  # it asked for a real model, or it never came to a decision
        if row["attempts"] == 0:
            return []
        return _candidates(route, (1.0,)) if isinstance(route, RealModel) else chosen
    if not isinstance(route, VirtualModel):
        return chosen
    try:
        policy = route.policy if row["policy"] == route.policy.name else state.policy_for(route, row["policy"])
    except ApiError:
        return chosen
    again = draw(policy.propensities(route.plans), policy.floor, row["id"], policy.seed)
    if (route.plans[again.chosen].name, again.propensity) != (row["plan"], row["propensity"]):
        return chosen
    return _candidates(route, again.probabilities)


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
