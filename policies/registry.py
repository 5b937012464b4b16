"""Every routing policy and wrapper, by the name that it has in the configuration: one line each.

A module is loaded when a configuration first names it, so numpy is not there where nobody asks for it. It holds

    Params                                    a msgspec.Struct: the parameters, from the configuration
    problems(params, plans) -> [sentence]     what cannot work with plans of these names
    build(params, plans, kit) -> policy       a wrapper's: build(params, inner, plans, kit)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from policies.policy import Encoder, Kit, Policy, RoutingPolicy
from policies.values.plan import Plan

ALGORITHMS: Mapping[str, str] = MappingProxyType(
    {
        "fixed": "policies.routing.fixed",
        "weighted": "policies.routing.weighted",
        "random": "policies.routing.uniform",
        "best_single": "policies.routing.best_single",
        "length": "policies.routing.length",
        "neighbors": "policies.routing.neighbors",
        "rules": "policies.routing.rules",
        "linucb": "policies.routing.linucb",
        "thompson": "policies.routing.thompson",
    }
)

WRAPPERS: Mapping[str, str] = MappingProxyType(
    {
        "sticky": "policies.wrappers.sticky",
        "shadow": "policies.wrappers.shadow",
        "canary": "policies.wrappers.canary",
        "frozen": "policies.wrappers.frozen",
        "safe": "policies.wrappers.safe",
        "newcomers": "policies.wrappers.newcomers",
        "alarm": "policies.wrappers.alarm",
    }
)


class Spec(msgspec.Struct, frozen=True):
    """A policy as it is configured. wrappers: the first is the innermost; each a `type` and its parameters."""

    type: str
    params: Mapping[str, Any] = {}
    floor: float = 0.0
    seed: int = 0
    wrappers: Sequence[Mapping[str, Any]] = ()


Specs = Mapping[str, Spec]


def policy(name: str, specs: Specs, plans: Sequence[Plan], baseline: str, encoder: Callable[[str], Encoder]) -> Policy:
    """Builds a configured policy; a type that is not configured goes by its own name (`fixed`). Raises ValueError."""
    spec = specs.get(name) or Spec(type=name)
    algorithm = _built(name, specs, plans, baseline, encoder, ())
    return Policy(name, algorithm, spec.floor, spec.seed, algorithm.empty())


def problems(name: str, specs: Specs, plans: Sequence[Plan], baseline: str, encoder: Callable[[str], Encoder]) -> list[str]:
    """What of a policy's configuration cannot work with these plans, as sentences; empty when all is well."""
    spec = specs.get(name) or Spec(type=name)
    names = [plan.name for plan in plans]
    try:
        found = list(_module(ALGORITHMS, spec.type).problems(_params(ALGORITHMS, spec.type, spec.params), names))
        for wrapper in spec.wrappers:
            kind, params = _split(wrapper)
            found += [f"{kind}: {each}" for each in _module(WRAPPERS, kind).problems(_params(WRAPPERS, kind, params), names)]
        if not found:
            policy(name, specs, plans, baseline, encoder)
    except ValueError as error:
        return [str(error)]
    return found


def _built(
    name: str, specs: Specs, plans: Sequence[Plan], baseline: str, encoder: Callable[[str], Encoder], inside: tuple[str, ...]
) -> RoutingPolicy[Any]:
    if name in inside:
        raise ValueError(f"policies name each other in a circle: {' -> '.join((*inside, name))}")
    spec = specs.get(name) or Spec(type=name)
    kit = Kit(encoder, lambda other: _other(other, specs, plans, baseline, encoder, (*inside, name)), baseline)
    built: RoutingPolicy[Any] = _module(ALGORITHMS, spec.type).build(_params(ALGORITHMS, spec.type, spec.params), plans, kit)
    for wrapper in spec.wrappers:
        kind, params = _split(wrapper)
        built = _module(WRAPPERS, kind).build(_params(WRAPPERS, kind, params), built, plans, kit)
    return built


def _other(
    name: str, specs: Specs, plans: Sequence[Plan], baseline: str, encoder: Callable[[str], Encoder], inside: tuple[str, ...]
) -> RoutingPolicy[Any]:
    if name not in specs:
        raise ValueError(f"no policy is called `{name}`")
    return _built(name, specs, plans, baseline, encoder, inside)


def _split(wrapper: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    params = dict(wrapper)
    kind = params.pop("type", None)
    if not isinstance(kind, str):
        raise ValueError(f"a wrapper needs a `type`; there are: {', '.join(WRAPPERS)}")
    return kind, params


def _module(known: Mapping[str, str], kind: str) -> Any:
    path = known.get(kind)
    if path is None:
        what = "policy" if known is ALGORITHMS else "wrapper"
        raise ValueError(f"unknown {what} type `{kind}`; there are: {', '.join(known)}")
    return importlib.import_module(path)


def _params(known: Mapping[str, str], kind: str, params: Mapping[str, Any]) -> Any:
    try:
        return msgspec.convert(dict(params), _module(known, kind).Params)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
