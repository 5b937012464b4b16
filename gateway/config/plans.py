"""Plans and policies of a configuration, as values that policies know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gateway.config.schema import Config, StrategySpec, VirtualModel
from models.response import Response
from policies.decoding.registry import strategy
from policies.registry import Spec
from policies.values.plan import Plan

Responses = Mapping[str, Response | None]


def plans_of(spec: VirtualModel, responses: Responses) -> tuple[Plan, ...]:
    """The plans of a virtual model, in configured order. responses: see responses_of."""
    plans = spec.plans.items()
    return tuple(Plan(name, p.model, p.strategy, p.reasoning, p.budget_tokens, responses.get(p.strategy)) for name, p in plans)


def responses_of(config: Config) -> Responses:
    """The response curve of each strategy. A kind of choice is one with the same models in its roles: another judge is another one."""
    return {name: _response(spec) for name, spec in config.strategies.items()}


def _response(spec: StrategySpec) -> Response | None:
    try:
        found = strategy(spec.type, spec.params).response
    except ValueError:
        return None  # the check of the configuration tells of it
    if found is None:
        return None
    return replace(found, kind="/".join([found.kind, *(f"{role}={model}" for role, model in sorted(spec.roles.items()))]))


def policy_specs(config: Config) -> dict[str, Spec]:
    """The configured policies, as the registry takes them."""
    return {name: Spec(p.type, p.params, p.floor, p.seed, tuple(p.wrappers)) for name, p in config.policies.items()}
