"""A scope: one policy over the plans of one virtual model. What it learns stands under one name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gateway.serving.state import State, VirtualModel
from policies.policy import Policy, RoutingPolicy


def scope_name(virtual_model: str, policy: str) -> str:
    """VIRTUAL_MODEL/POLICY."""
    return f"{virtual_model}/{policy}"


@dataclass(frozen=True)
class Scope:
    """name: see scope_name. plans: the names of all plans, in order. baseline: that which is the guarantee. config_hash: of the
    configuration that it is of."""

    name: str
    algorithm: RoutingPolicy[Any]
    plans: tuple[str, ...]
    baseline: str = ""
    config_hash: str = ""

    @cached_property
    def learns(self) -> bool:
        """Whether the policy has a state."""
        return self.algorithm.empty() is not None

    @cached_property
    def feature_version(self) -> str:
        """Names and sizes of the blocks that the policy reads."""
        return ",".join(f"{each.name}:{each.dim}" for each in self.algorithm.encoders)


def scope_of(route: VirtualModel, policy: Policy, config_hash: str = "") -> Scope:
    """Of a virtual model and any of its policies."""
    plans = tuple(plan.name for plan in route.plans)
    return Scope(scope_name(route.name, policy.name), policy.algorithm, plans, route.baseline, config_hash)


def scopes_of(state: State) -> tuple[Scope, ...]:
    """Of each virtual model the policies that may decide for it: its own, and those that a request may name."""
    return tuple(
        Scope(scope_name(route.name, name), policy.algorithm, tuple(plan.name for plan in route.plans), route.baseline, state.hash)
        for route in state.names.values()
        if isinstance(route, VirtualModel)
        for name, policy in route.policies.items()
    )
