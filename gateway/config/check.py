"""What cannot work in a configuration although it parses: names that lead nowhere, missing files, idle keys.

    check(config) -> findings, errors and warnings

A configuration with an error must not be served; a warning is most likely a mistake.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from gateway.config.check_engines import check_engines
from gateway.config.plans import plans_of, policy_specs, responses_of
from gateway.config.problems import Finding, Loc, did_you_mean
from gateway.config.schema import Config, Key, Model, PlanSpec, StrategySpec, VirtualModel
from gateway.engines.embeddings import endpoints
from gateway.store.urls import PostgresUrl, located
from policies import registry
from policies.decoding.registry import SINGLE, strategy
from policies.decoding.strategy import REWARD, VERIFIER, Needs
from policies.encoders import Encoders
from policies.values.plan import Plan

PolicyProblems = Callable[[str, registry.Specs, Sequence[Plan], str], list[str]]
"""(name, all policies, plans, baseline) -> what is wrong with that policy for a virtual model with these plans, a sentence each."""

_EMPTY_DIGEST = hashlib.sha256(b"").hexdigest()


def check(config: Config, policy_problems: PolicyProblems | None = None) -> list[Finding]:
    """Everything that is wrong with `config`; looks at the files that it names, and at nothing else."""
    names = _Names.of(config)
    if policy_problems is None:
        policy_problems = partial(registry.problems, encoder=Encoders(endpoints(config.embeddings)))  # which asks none of them
    return [
        *check_engines(config),
        *_models(config, names),
        *_policies(config, policy_problems),
        *_strategies(config, names),
        *(finding for name, virtual in config.virtual_models.items() for finding in _virtual(name, virtual, config, names)),
        *_keys(config, names),
        *_limits(config),
        *_storage(config),
        *_learning(config, names),
    ]


@dataclass(frozen=True, slots=True)
class _Names:
    """Who is who: real models (served by a backend), aliases (-> their model), virtual models, retired ones (-> who replaced them)."""

    real: Collection[str]
    aliases: Mapping[str, str]
    virtual: Collection[str]
    retired: Mapping[str, str]

    @staticmethod
    def of(config: Config) -> _Names:
        real = dict.fromkeys(name for backend in config.backends.values() for name in backend.models)
        aliases = {alias: name for name, model in config.models.items() for alias in model.aliases}
        retired = {name: model.replaced_by for name, model in config.models.items() if model.replaced_by is not None}
        return _Names(real, aliases, config.virtual_models.keys(), retired)

    def serving(self, name: str) -> str | None:
        """The real model behind a name; None: there is none."""
        seen: set[str] = set()
        while name not in seen:
            seen.add(name)
            name = self.aliases.get(name, name) if name not in self.real else name
            if name not in self.retired:
                return name if name in self.real else None
            name = self.retired[name]
        return None

    @property
    def all(self) -> list[str]:
        return [*dict.fromkeys([*self.real, *self.aliases, *self.virtual, *self.retired])]


def _models(config: Config, names: _Names) -> Iterator[Finding]:
    owners: dict[str, str] = {}
    for name, model in config.models.items():
        loc = ("models", name)
        if model.replaced_by is not None:
            yield from _retired(name, model.replaced_by, config, names)
        elif name not in names.real and name not in names.aliases:
            yield Finding(loc, f"no backend serves this model{did_you_mean(name, names.real)}", about_key=True)
        for index, alias in enumerate(model.aliases):
            place = (*loc, "aliases", index)
            if alias in names.real:
                yield Finding(place, f"`{alias}` is itself a model that a backend serves")
            elif alias in names.virtual:
                yield Finding(place, f"`{alias}` is the name of a virtual model too")
            elif alias in names.retired:
                yield Finding(place, f"`{alias}` is itself a retired model")
            elif alias in owners:
                yield Finding(place, f"`{alias}` is an alias of `{owners[alias]}` already")
            owners.setdefault(alias, name)
        if name in names.aliases and name not in names.real and name not in names.retired:
            yield Finding(loc, _chain(name, names), about_key=True)
        yield from _fallbacks(name, model, config, names)
    for name in names.virtual:
        if name in names.real:
            yield Finding(("virtual_models", name), "a backend serves a model of this name", about_key=True)
    for name in names.real:
        if name not in config.models or "price" not in config.models[name].model_fields_set:
            where = ("models", name) if name in config.models else _served(config, name)
            yield Finding(where, f"model `{name}` has no price: its tokens count as free", "warning", about_key=True)


def _retired(name: str, successor: str, config: Config, names: _Names) -> Iterator[Finding]:
    place = ("models", name, "replaced_by")
    if name in names.virtual:
        yield Finding(("models", name), "this is the name of a virtual model too", about_key=True)
    if names.serving(successor) is not None:
        if name in names.real:
            _, backend, *_ = _served(config, name)
            message = f"`{name}` is retired, but backend `{backend}` still serves it: it gets no calls under this name"
            yield Finding(place, message, "warning")
        return
    if successor in names.virtual:
        yield Finding(place, f"`{successor}` is a virtual model: a real one takes the place of another")
        return
    way = [name, successor]
    while (further := names.retired.get(names.aliases.get(way[-1], way[-1]))) is not None and way[-1] not in way[:-1]:
        way.append(further)
    if way[-1] in way[:-1]:
        yield Finding(place, f"models are replaced in a circle: {' -> '.join(way)}")
    else:
        yield Finding(place, f"no backend serves `{way[-1]}`{did_you_mean(way[-1], [*names.real, *names.aliases])}")


def _fallbacks(name: str, model: Model, config: Config, names: _Names) -> Iterator[Finding]:
    for index, fallback in enumerate(model.fallbacks):
        place = ("models", name, "fallbacks", index)
        target = names.serving(fallback) or names.aliases.get(fallback, fallback)
        if target not in names.real:
            if target in names.virtual:
                yield Finding(place, f"`{fallback}` is a virtual model: a fallback names a real one")
            else:
                yield Finding(place, f"no backend serves `{fallback}`{did_you_mean(fallback, [*names.real, *names.aliases])}")
        elif (circle := _circle(name, target, config, names)) is not None:
            yield Finding(place, f"fallbacks run in a circle: {' -> '.join(circle)}")
    if model.fallbacks and model.attempts <= len(model.fallbacks):
        message = f"`attempts: {model.attempts}` leaves no call for the last of {len(model.fallbacks)} fallbacks after a first failure"
        yield Finding(("models", name, "attempts") if "attempts" in model.model_fields_set else ("models", name), message, "warning")
    if model.fallbacks and "embeddings" in model.capabilities:
        message = "embeddings are never answered by another model: fallbacks count for text only"
        yield Finding(("models", name, "fallbacks"), message, "warning")


def _circle(name: str, target: str, config: Config, names: _Names) -> list[str] | None:
    """The way by which `target` falls back to `name` again."""
    ways = [[name, target]]
    for way in ways:
        if way[-1] == name:
            return way
        further = config.models[way[-1]].fallbacks if way[-1] in config.models else []
        seen = {step for other in ways for step in other[1:]}
        ways += [[*way, each] for each in (names.serving(step) or step for step in further) if each == name or each not in seen]
    return None


def _served(config: Config, model: str) -> tuple[str, ...]:
    backend = next(name for name, backend in config.backends.items() if model in backend.models)
    return ("backends", backend, "models", model)


def _chain(name: str, names: _Names) -> str:
    """What is wrong with a section for `name`, which is an alias."""
    chain = [name]
    while chain[-1] in names.aliases and chain[-1] not in names.real:
        step = names.aliases[chain[-1]]
        if step in chain:
            return f"aliases run in a circle: {' -> '.join([*chain, step])}"
        chain.append(step)
    return f"an alias has no section of its own ({' -> '.join(chain)}): what is said here belongs under `{chain[-1]}`"


def _policies(config: Config, policy_problems: PolicyProblems) -> Iterator[Finding]:
    if "fixed" in config.policies and config.policies["fixed"].type != "fixed":
        yield Finding(("policies", "fixed"), "`fixed` is built in: give this policy another name", about_key=True)
    specs, responses = policy_specs(config), responses_of(config)
    named = {each for spec in specs.values() for wrapper in spec.wrappers if isinstance(each := wrapper.get("policy"), str)}
    for name, policy in config.policies.items():
        users = {model: virtual for model, virtual in config.virtual_models.items() if virtual.policy == name}
        if not users:
            if name not in named:
                yield Finding(("policies", name), "no virtual model uses this policy", "warning", about_key=True)
            if policy.type not in registry.ALGORITHMS:  # without plans to compare with, only that is certainly wrong
                for problem in policy_problems(name, specs, (), ""):
                    yield Finding(("policies", name), problem, about_key=True)
        for model, virtual in users.items():
            plans = plans_of(virtual, responses)
            if virtual.baseline is not None and virtual.baseline not in virtual.plans:
                continue  # which is told of elsewhere
            for problem in policy_problems(name, specs, plans, virtual.baseline or plans[0].name):
                yield Finding(("policies", name), f"for virtual model `{model}`: {problem}", about_key=True)


def _strategies(config: Config, names: _Names) -> Iterator[Finding]:
    used = {plan.strategy for virtual in config.virtual_models.values() for plan in virtual.plans.values()}
    for name, spec in config.strategies.items():
        loc = ("strategies", name)
        if name == SINGLE:
            yield Finding(loc, f"`{SINGLE}` is built in: give this strategy another name", about_key=True)
        elif name not in used:
            yield Finding(loc, "no plan uses this strategy", "warning", about_key=True)
        try:
            needs = strategy(spec.type, spec.params).needs
        except ValueError as error:
            yield Finding(loc, str(error), about_key=True)
            continue
        for role, model in spec.roles.items():
            if role not in needs.roles | (needs.scorers & {REWARD}):
                yield Finding((*loc, "roles", role), f"`{spec.type}`, as it is set here, asks no `{role}`", "warning", about_key=True)
            if names.serving(model) is None:
                suggestion = did_you_mean(model, [*names.real, *names.aliases])
                yield Finding((*loc, "roles", role), f"no backend serves `{model}`{suggestion}")
        yield from _scorers(loc, spec, needs)


def _scorers(loc: Loc, spec: StrategySpec, needs: Needs) -> Iterator[Finding]:
    """Who scores answers has to be there: the plan's own model cannot."""
    idle = f"`{spec.type}`, as it is set here, has no answers scored by it"
    if REWARD in needs.scorers and REWARD not in spec.roles:
        yield Finding(loc, f"`roles` has to name a model that scores answers: `{REWARD}`", about_key=True)
    if REWARD not in needs.scorers and "scoring" in spec.model_fields_set:
        yield Finding((*loc, "scoring"), idle.replace("by it", f"by a `{REWARD}`"), "warning", about_key=True)
    if VERIFIER in needs.scorers and spec.verifier is None:
        yield Finding(loc, f"`{VERIFIER}` has to say where answers are sent", about_key=True)
    if VERIFIER not in needs.scorers and spec.verifier is not None:
        yield Finding((*loc, VERIFIER), idle, "warning", about_key=True)


def _virtual(name: str, virtual: VirtualModel, config: Config, names: _Names) -> Iterator[Finding]:
    loc = ("virtual_models", name)
    policies = [*config.policies, "fixed"]
    if virtual.policy not in policies:
        yield Finding((*loc, "policy"), f"there is no policy `{virtual.policy}`{did_you_mean(virtual.policy, policies)}")
    elif virtual.policy == "fixed":
        if len(virtual.plans) != 1 and "fixed" not in config.policies:
            yield Finding((*loc, "plans"), "policy `fixed` needs exactly one plan", about_key=True)
    elif len(virtual.plans) == 1 and config.policies[virtual.policy].type != "fixed":
        yield Finding((*loc, "policy"), "a policy has nothing to choose from one plan: `fixed` would do", "warning")
    for plan, spec in virtual.plans.items():
        if spec.strategy != SINGLE and spec.strategy not in config.strategies:
            suggestion = did_you_mean(spec.strategy, [*config.strategies, SINGLE])
            yield Finding((*loc, "plans", plan, "strategy"), f"there is no strategy `{spec.strategy}`{suggestion}")
        place, model = (*loc, "plans", plan, "model"), spec.model
        if (served := names.serving(model)) is not None:
            yield from _unforced((*loc, "plans", plan, "strategy"), config, spec, served)
            continue
        if model in names.virtual:
            yield Finding(place, f"`{model}` is a virtual model: a plan names a real one")
        else:
            yield Finding(place, f"no backend serves `{model}`{did_you_mean(model, [*names.real, *names.aliases])}")
    if virtual.baseline is not None and virtual.baseline not in virtual.plans:
        suggestion = did_you_mean(virtual.baseline, virtual.plans)
        yield Finding((*loc, "baseline"), f"`{virtual.baseline}` is no plan of this virtual model{suggestion}")


def _unforced(loc: Loc, config: Config, plan: PlanSpec, model: str) -> Iterator[Finding]:
    """Engines that cannot do what a strategy is there for."""
    spec = config.strategies.get(plan.strategy)
    try:
        needs = Needs() if spec is None else strategy(spec.type, spec.params).needs
    except ValueError:
        return
    others = [name for name, each in config.backends.items() if model in each.models and each.engine == "openai"]
    if others and (needs.writes or needs.thinking is not None):
        yield Finding(loc, f"engines of the kind of `{others[0]}` cannot bound thoughts: its answers are plain ones", "warning")


def _keys(config: Config, names: _Names) -> Iterator[Finding]:
    if not config.keys:
        yield Finding(("keys",), "there are no keys, so nobody could call: give at least one", about_key=True)
    elif not any("inference" in key.scopes and key.models for key in config.keys):
        yield Finding(("keys",), "no key may ask a model anything (scope `inference`, and `models`)", "warning", about_key=True)
    first_name: dict[str, int] = {}
    first_digest: dict[str, int] = {}
    for index, key in enumerate(config.keys):
        if first_name.setdefault(key.name, index) != index:
            yield Finding(("keys", index, "name"), f"keys[{first_name[key.name]}] has this name too")
        if first_digest.setdefault(key.sha256, index) != index:
            yield Finding(("keys", index, "sha256"), f"keys[{first_digest[key.sha256]}] has this digest too")
        if key.sha256 == _EMPTY_DIGEST:
            yield Finding(("keys", index, "sha256"), "this is the digest of an empty key")
        yield from _allowed_models(index, key, names)


def _allowed_models(index: int, key: Key, names: _Names) -> Iterator[Finding]:
    if not key.scopes:
        yield Finding(("keys", index, "scopes"), "this key opens nothing", "warning", about_key=True)
    for place, pattern in enumerate(key.models):
        if any(fnmatchcase(name, pattern) for name in names.all):
            continue
        if any(letter in pattern for letter in "*?["):
            yield Finding(("keys", index, "models", place), f"no model matches `{pattern}`", "warning")
        else:
            yield Finding(("keys", index, "models", place), f"there is no model `{pattern}`{did_you_mean(pattern, names.all)}")


def _limits(config: Config) -> Iterator[Finding]:
    tenants = {key.tenant for key in config.keys}
    for tenant in config.limits.tenants:
        if tenant not in tenants and not config.storage.url:  # a key of the database may be this tenant's
            message = f"no key has this tenant{did_you_mean(tenant, tenants)}"
            yield Finding(("limits", "tenants", tenant), message, "warning", about_key=True)


def _learning(config: Config, names: _Names) -> Iterator[Finding]:
    spec = config.learning
    place = ("learning", "judge", "model")
    if spec.judge is not None and names.serving(spec.judge.model) is None:
        if spec.judge.model in names.virtual:
            yield Finding(place, f"`{spec.judge.model}` is a virtual model: a judge is a real one")
        else:
            yield Finding(place, f"no backend serves `{spec.judge.model}`{did_you_mean(spec.judge.model, [*names.real, *names.aliases])}")
    said = {"signals": bool(spec.signals), "verifier": spec.verifier is not None, "judge": spec.judge is not None and spec.judge.share > 0}
    for key in [name for name, on in said.items() if on and not config.storage.url]:
        yield Finding(("learning", key), "has no effect without a database (`storage.url`)", "warning", about_key=True)


def _storage(config: Config) -> Iterator[Finding]:
    try:
        location = located(config.storage.url)
    except ValueError as error:
        yield Finding(("storage", "url"), str(error))
        return
    if isinstance(location, PostgresUrl) and importlib.util.find_spec("psycopg") is None:
        yield Finding(("storage", "url"), "PostgreSQL needs the extra `postgres`: pip install 'trilemma[postgres]'")
