"""`/v1/models`: what the key may use. A real model's card is the backend's own, under its public name."""

from __future__ import annotations

from typing import Any

from gateway.access.keys import Principal
from gateway.serving.state import RealModel, State


def cards(state: State, principal: Principal) -> list[dict[str, Any]]:
    """Real models in configured order, then aliases, then virtual models."""
    names = sorted(state.names, key=lambda name: _rank(state, name))
    return [card(state, name) for name in names if principal.may_use(name)]


def card(state: State, name: str) -> dict[str, Any]:
    """One model's card: OpenAI's four fields, whatever else the backends say, the smallest context of its replicas, and under `trilemma`
    what the configuration says."""
    route = state.names[name]
    base: dict[str, Any] = {"id": name, "object": "model", "created": 0, "owned_by": "trilemma"}
    if not isinstance(route, RealModel):
        return base | {"trilemma": {"policy": route.policy.name, "plans": [plan.name for plan in route.plans]}}
    found = route.cards()
    lengths = [each.max_model_len for each in found if each.max_model_len is not None]
    if route.context is not None:
        lengths.append(route.context)
    merged = base | (found[0].raw if found else {}) | {"id": name, "object": "model"}
    if lengths:
        merged["max_model_len"] = min(lengths)
    known = state.config.models.get(route.public)
    if known is not None:
        merged["trilemma"] = {"capabilities": known.capabilities, "price": known.price.model_dump()}
    return merged


def _rank(state: State, name: str) -> int:
    route = state.names[name]
    if isinstance(route, RealModel):
        return 0 if route.public == name else 1
    return 2
