"""The policy that a command is asked about, from a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from gateway.config.load import load
from gateway.config.plans import plans_of, policy_specs, responses_of
from gateway.config.problems import ConfigError
from gateway.config.schema import Config, Embeddings
from gateway.engines.embeddings import OFF_LINE_S, endpoints
from gateway.learning.calibrating import believed
from gateway.proof.failing import Failed
from gateway.store.urls import Location, located
from policies import registry
from policies.encoders import Encoders
from policies.policy import Policy
from policies.signals.calibration import Calibration
from policies.values.plan import Plan


class Subject(NamedTuple):
    """policy: that is asked about. plans: of the virtual model. baseline: the plan that is its guarantee. model: its name. by_unit:
    policies that draw once for all requests of a unit. believed: what sources' words are worth before anything is known. location: of the
    database; None: there is none."""

    policy: Policy
    plans: tuple[Plan, ...]
    baseline: str
    model: str
    by_unit: frozenset[str]
    believed: Mapping[str, Calibration]
    location: Location | None


def configured(config: Path, model: str | None, name: str | None) -> Subject:
    """A policy over the plans of a virtual model. model: None: the only one. name: None: the one that the model is served by. Raises
    Failed."""
    try:
        found = load(config).config
        location = located(found.storage.url)
    except (ConfigError, ValueError) as error:
        raise Failed(str(error), 2) from None
    models = found.virtual_models
    if model is None and len(models) != 1:
        raise Failed(f"{config} has {len(models)} virtual models; name one with --model", 2)
    chosen = next(iter(models)) if model is None else model
    if chosen not in models:
        raise Failed(f"{config} has no virtual model `{chosen}`", 2)
    spec = models[chosen]
    plans = plans_of(spec, responses_of(found))
    specs = policy_specs(found)
    baseline = spec.baseline or plans[0].name
    policy = built(name or spec.policy, specs, plans, baseline, found.embeddings)
    by_unit = frozenset(each for each, of in specs.items() if any(wrapper.get("type") == "canary" for wrapper in of.wrappers))
    return Subject(policy, plans, baseline, chosen, by_unit, believed(found.learning), location)


def loaded(config: Path) -> Config:
    """The configuration. Raises Failed."""
    try:
        return load(config).config
    except (ConfigError, ValueError) as error:
        raise Failed(str(error), 2) from None


def built(
    name: str,
    specs: registry.Specs,
    plans: Sequence[Plan],
    baseline: str,
    embeddings: Mapping[str, Embeddings] = MappingProxyType({}),
) -> Policy:
    """Raises Failed where the policy cannot work with these plans. embeddings: endpoints that it may read; they get all the time they want,
    for no request waits."""
    encoders = Encoders(endpoints(embeddings, OFF_LINE_S))
    problems = registry.problems(name, specs, plans, baseline, encoders)
    if problems:
        raise Failed(f"the policy `{name}`: {problems[0]}", 2)
    return registry.policy(name, specs, plans, baseline, encoders)
