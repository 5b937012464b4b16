"""Plans and policies of a configuration, as values that policies know."""

from __future__ import annotations

from gateway.config.schema import Config, VirtualModel
from policies.registry import Spec
from policies.values.plan import Plan


def plans_of(spec: VirtualModel) -> tuple[Plan, ...]:
    """The plans of a virtual model, in configured order."""
    return tuple(Plan(name, p.model, p.strategy, p.reasoning, p.budget_tokens) for name, p in spec.plans.items())


def policy_specs(config: Config) -> dict[str, Spec]:
    """The configured policies, as the registry takes them."""
    return {name: Spec(p.type, p.params, p.floor, p.seed, tuple(p.wrappers)) for name, p in config.policies.items()}
