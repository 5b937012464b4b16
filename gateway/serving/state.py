"""The gateway built from one configuration: a complete value that is swapped whole on reload."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.access.keys import Keys, principals
from gateway.config.plans import Responses, plans_of, policy_specs, responses_of
from gateway.config.schema import Backend as Spec
from gateway.config.schema import Config, Hedge, Model, OwnTimeouts, Preference, Price, Queue, Timeouts, Worth
from gateway.config.schema import VirtualModel as Virtual
from gateway.engines.base import ModelInfo
from gateway.engines.embeddings import endpoint, endpoints
from gateway.pool.backend import Backend, backend
from gateway.pool.discovery.discovery import replica
from gateway.pool.discovery.endpoint import Endpoint
from gateway.pool.hedging import Hedging
from gateway.pool.replicas import Replicas
from gateway.serving.admission import Admission
from gateway.serving.retry import Retry
from gateway.serving.verifying import Verifying
from gateway.store.keys import StoredKey
from gateway.wire.errors import ApiError
from gateway.wire.scores import Scoring
from gateway.wire.usage import Rates, Usage
from policies import registry
from policies.decoding.registry import SINGLE, strategy
from policies.decoding.strategy import Strategy
from policies.encoders import Encoders
from policies.policy import Policy
from policies.values.plan import Plan

CHARACTERS_OF_TOKEN: Final = 3
"""Of what roles are asked, from below: English has more. What then overflows all the same is refused by the engine, and another word
decides."""


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model that backends serve.

    public: its name to callers. limits: the bounds of a call, by backend. capabilities: what it can do; empty: nothing is said. stand_ins:
    the models that serve instead when it fails, each once, in the order in which they are asked; whom these would fall back to is among
    them.
    """

    public: str
    replicas: Replicas
    rates: Rates
    context: int | None
    retry: Retry
    admission: Admission | None
    hedging: Hedging | None
    limits: Mapping[str, Timeouts]
    deadline_ms: int | None
    capabilities: frozenset[str] = frozenset()
    stand_ins: tuple[RealModel, ...] = ()

    @property
    def backends(self) -> tuple[Backend, ...]:
        """Its replicas, in configured order."""
        return self.replicas.backends

    def held_context(self) -> int | None:
        """Tokens of prompt and answer that every replica holds: as configured, or as the engines say."""
        if self.context is not None:
            return self.context
        least: int | None = None
        for each in self.backends:  # as in `cards`; this is asked for each request
            card = each.cards.get(each.models[self.public])
            held = None if card is None or self.public in each.strangers else card.max_model_len
            if held is not None and (least is None or held < least):
                least = held
        return least

    def cards(self) -> list[ModelInfo]:
        """What the engines say of it, but for those behind whose name another model answers now."""
        own = [(each, each.models[self.public]) for each in self.backends if self.public not in each.strangers]
        return [each.cards[name] for each, name in own if name in each.cards]


@dataclass(frozen=True, slots=True)
class Decoding:
    """How a plan is decoded. roles: who plays them, beside the plan's own model. temperature, scoring: see config.schema.StrategySpec.
    verifier: the service that plays this role."""

    strategy: Strategy
    roles: Mapping[str, RealModel] = field(default_factory=dict)
    temperature: float | None = None
    scoring: Scoring = "score"
    verifier: Verifying | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """What a plan asks for in the worst case. models: who answers, the plan's own first. candidates: answers of theirs. rates: the highest
    among these models. questions: what all questions to others cost, USD."""

    models: tuple[RealModel, ...]
    candidates: int
    rates: Rates
    questions: float

    @staticmethod
    def of(model: RealModel, decoding: Decoding | None) -> Load:
        """decoding: None: one plain call."""
        if decoding is None:
            return Load((model,), 1, model.rates, 0.0)
        strategy, asked = decoding.strategy, decoding.strategy.needs.asked
        others = [each for role, each in decoding.roles.items() if asked is None or role != asked.role]
        rates = Rates(*(max(getattr(each.rates, name) for each in (model, *others)) for name in ("input", "cached_input", "output")))
        questions = 0.0
        if asked is not None:
            most = Usage(-(-asked.room // CHARACTERS_OF_TOKEN), 0, asked.most)
            questions = strategy.asks * decoding.roles.get(asked.role, model).rates.cost(most)
        return Load((model, *others), strategy.most, rates, questions)


@dataclass(frozen=True, slots=True)
class VirtualModel:
    """A name behind which a policy picks a plan.

    models, decodings, loads: of each plan, in order; decodings: None: one plain call. decodes: some plan has a strategy. distinct: the
    models, each once. kinds: of each plan a number, the same for those that differ in name and bound only. baseline: name of the plan that
    serves when no policy can decide. policies: all that are configured and fit these plans, by name. max_cost: USD. preference, prices:
    what counts how much; prices win. encoder_s: how long slow features may take.
    """

    name: str
    policy: Policy
    plans: tuple[Plan, ...]
    models: tuple[RealModel, ...]
    decodings: tuple[Decoding | None, ...]
    deadline_ms: int | None
    baseline: str
    policies: Mapping[str, Policy]
    max_cost: float | None
    preference: Preference
    prices: Worth | None
    encoder_s: float = 0.15
    loads: tuple[Load, ...] = field(init=False)
    decodes: bool = field(init=False)
    distinct: tuple[RealModel, ...] = field(init=False)
    kinds: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """What would be the same for each request."""
        object.__setattr__(self, "loads", tuple(map(Load.of, self.models, self.decodings)))
        object.__setattr__(self, "decodes", any(each is not None for each in self.decodings))
        object.__setattr__(self, "distinct", tuple({id(model): model for model in self.models}.values()))
        ways = [(plan.model, plan.reasoning, plan.strategy) for plan in self.plans]
        object.__setattr__(self, "kinds", tuple(map({way: at for at, way in enumerate(ways)}.__getitem__, ways)))

    def decoding_of(self, plan: str | None) -> Decoding | None:
        """How the plan of that name is decoded."""
        return next((found for each, found in zip(self.plans, self.decodings, strict=True) if each.name == plan), None)


@dataclass(frozen=True, slots=True)
class State:
    """Everything a request needs, read-only. `names` holds real models, aliases and virtual models.

    keys: those of the configuration and of the database, which are `stored`. encoders: those that policies read; what they remember of
    messages goes on over reloads.
    """

    config: Config
    hash: str
    keys: Keys
    names: Mapping[str, RealModel | VirtualModel]
    backends: Mapping[str, Backend]
    stored: Sequence[StoredKey] = ()
    encoders: Encoders = field(default_factory=Encoders)

    def with_stored(self, stored: Sequence[StoredKey]) -> State:
        """The same with these keys of the database."""
        return replace(self, keys=principals(self.config.keys, self.names, self.config.limits, stored), stored=stored)

    def take_up(self) -> None:
        """It is in use from now on: the queues that it shares with the state before take its bounds."""
        for name, model in self.config.models.items():
            route = self.names.get(name)
            if model.queue is not None and isinstance(route, RealModel) and route.public == name and route.admission is not None:
                spec = model.queue
                route.admission.resize(slots=spec.slots, room=spec.room, wait_s=spec.wait_s, weights=spec.weights)

    def unanswered(self) -> list[str]:
        """Real models none of whose backends has answered yet."""
        real = {route.public: route for route in self.names.values() if isinstance(route, RealModel)}
        return [name for name, model in real.items() if not any(backend.answered for backend in model.backends)]

    def policy_for(self, route: VirtualModel, name: str) -> Policy:
        """A configured policy over a virtual model's plans. Raises ApiError 400 when there is none or it does not fit."""
        policy = route.policies.get(name)
        if policy is None:
            raise ApiError(400, "caller_invalid_value", "No such policy fits this model.", param="trilemma.policy")
        return policy


Urls = Callable[[str], str]
Found = Callable[[str], Sequence[Endpoint]]


def build(
    config: Config,
    config_hash: str,
    managed_url: Urls,
    before: State | None = None,
    found: Found = lambda _: (),
) -> State:
    """A state from a checked configuration.

    managed_url: where a managed backend listens. found: the replicas of a discovered one. before: the state until now; a backend, a queue
    or a set of replicas that is the same goes on, with its counts. Raises ValueError for a policy that cannot be built.
    """
    encoders = _encoders(config, before)
    backends: dict[str, Backend] = {}
    for name, spec in config.backends.items():
        for fresh in _replicas(name, spec, managed_url, found):
            old = before.backends.get(fresh.name) if before is not None else None
            same = old is not None and (old.spec, old.url, old.authorization) == (fresh.spec, fresh.url, fresh.authorization)
            if old is not None and not same:
                fresh.succeed(old)
            backends[fresh.name] = old if same and old is not None else fresh
    base = _real_models(config, backends, before)
    real = {name: replace(model, stand_ins=_stand_ins(config, name, base)) for name, model in base.items()}
    names: dict[str, RealModel | VirtualModel] = dict(real)
    for public, model in config.models.items():
        served = real[_unaliased(config, public)]
        names.update(dict.fromkeys(model.aliases if model.replaced_by is None else [public, *model.aliases], served))
    responses = responses_of(config)
    for name, spec_v in config.virtual_models.items():
        names[name] = _virtual(config, name, spec_v, responses, real, encoders)
    stored = before.stored if before is not None else ()
    return State(config, config_hash, principals(config.keys, names, config.limits, stored), names, backends, stored, encoders)


def _encoders(config: Config, before: State | None) -> Encoders:
    """Those of the state before, with what they remember, but for endpoints whose settings changed."""
    if before is None:
        return Encoders(endpoints(config.embeddings))
    was = before.config.embeddings
    if config.embeddings == was:
        return before.encoders
    known = before.encoders.endpoints
    return before.encoders.over(
        {name: known[name] if was.get(name) == spec else endpoint(name, spec) for name, spec in config.embeddings.items()}
    )


def _virtual(
    config: Config, name: str, spec: Virtual, responses: Responses, real: Mapping[str, RealModel], encoder: Encoders
) -> VirtualModel:
    plans = plans_of(spec, responses)
    baseline = spec.baseline or plans[0].name
    specs = policy_specs(config)
    fitting = [each for each in specs if each == spec.policy or not registry.problems(each, specs, plans, baseline, encoder)]
    policies = {each: registry.policy(each, specs, plans, baseline, encoder) for each in dict.fromkeys([*fitting, spec.policy])}
    return VirtualModel(
        name=name,
        policy=policies[spec.policy],
        plans=plans,
        models=_plan_models(config, spec, plans, real),
        decodings=tuple(_decoding(config, plan.strategy, real) for plan in plans),
        deadline_ms=spec.caps.deadline_ms,
        baseline=baseline,
        policies=policies,
        max_cost=spec.caps.max_cost,
        preference=spec.preference,
        prices=spec.prices,
        encoder_s=config.learning.encoder_ms / 1e3,
    )


def _replicas(name: str, spec: Spec, managed_url: Urls, found: Found) -> list[Backend]:
    if spec.discover is None:
        return [backend(name, spec, spec.url if spec.url is not None else managed_url(name))]
    return [backend(replica(name, each), spec.model_copy(update={"weight": spec.weight * each.weight}), each.url) for each in found(name)]


def _real_models(config: Config, backends: Mapping[str, Backend], before: State | None) -> dict[str, RealModel]:
    # A model is there before its replicas are found.
    serving: dict[str, list[Backend]] = {public: [] for spec in config.backends.values() for public in spec.models}
    for each in backends.values():
        for public in each.models:
            serving[public].append(each)
    found = {}
    for public, replicas in serving.items():
        card = config.models.get(public, Model())
        old = _known(before, public)
        known = old.replicas if old is not None else None
        found[public] = RealModel(
            public=public,
            replicas=Replicas(public, replicas, before=known),
            rates=_rates(card.price),
            context=card.context,
            retry=Retry(card.attempts, card.retry_wait_s),
            admission=_admission(card.queue, old.admission if old is not None else None),
            hedging=_hedging(card.hedge, public, before),
            limits={each.name: card.timeouts.over(each.timeouts) for each in replicas},
            deadline_ms=card.deadline_ms,
            capabilities=frozenset(card.capabilities),
        )
    return found


def _stand_ins(config: Config, name: str, real: Mapping[str, RealModel]) -> tuple[RealModel, ...]:
    """Whom a model falls back to, and whom these do, and so on: those nearer come first, each once."""
    seen = [name]
    for each in seen:
        for further in config.models.get(each, Model()).fallbacks:
            if (model := _unaliased(config, further)) not in seen:
                seen.append(model)  # and is looked at in its turn
    return tuple(real[each] for each in seen[1:])


def _plan_models(config: Config, spec: Virtual, plans: Sequence[Plan], real: Mapping[str, RealModel]) -> tuple[RealModel, ...]:
    """The model of each plan. When it fails, its fallbacks stand in, then the baseline's model, then those of the other plans."""
    order = sorted(plans, key=lambda plan: plan.name != spec.baseline)
    named = [_unaliased(config, plan.model) for plan in order]
    found = {}
    for name in named:
        model = real[name]
        others = dict.fromkeys([each.public for each in model.stand_ins] + named)
        others.pop(name)
        found[name] = _bounded(replace(model, stand_ins=tuple(_bounded(real[each], spec.timeouts) for each in others)), spec.timeouts)
    return tuple(found[_unaliased(config, plan.model)] for plan in plans)


def _decoding(config: Config, name: str, real: Mapping[str, RealModel]) -> Decoding | None:
    if name == SINGLE:
        return None
    spec = config.strategies[name]
    roles = {role: real[_unaliased(config, model)] for role, model in spec.roles.items()}
    verifier = None if spec.verifier is None else Verifying(spec.verifier)
    return Decoding(strategy(spec.type, spec.params), roles, spec.temperature, spec.scoring, verifier)


def _bounded(model: RealModel, own: OwnTimeouts) -> RealModel:
    """The same model, whose calls a virtual model bounds in its own way."""
    return replace(model, limits={name: own.over(limits) for name, limits in model.limits.items()})


def _hedging(spec: Hedge | None, public: str, before: State | None) -> Hedging | None:
    """What is known of waits goes on over a reload that does not change the hedging."""
    if spec is None:
        return None
    old = _known(before, public)
    if before is not None and old is not None and before.config.models.get(public, Model()).hedge == spec:
        return old.hedging
    return Hedging(share=spec.share, quantile=spec.quantile, least_s=spec.least_s)


def _admission(spec: Queue | None, running: Admission | None) -> Admission | None:
    """The queue of a model; one that runs goes on, so that no call is counted twice or lost, and takes new bounds with the new state."""
    if spec is None:
        return None
    # Made in any case: bounds that cannot be are refused here, while the state before is still in use.
    fresh = Admission(time.monotonic, slots=spec.slots, room=spec.room, wait_s=spec.wait_s, weights=spec.weights)
    return fresh if running is None else running


def _rates(price: Price) -> Rates:
    cached = price.input if price.cached_input is None else price.cached_input
    return Rates(input=price.input, cached_input=cached, output=price.output)


def _known(before: State | None, public: str) -> RealModel | None:
    """The real model of this name until now, if requests for it reached it."""
    old = before.names.get(public) if before is not None else None
    return old if isinstance(old, RealModel) and old.public == public else None


def _unaliased(config: Config, name: str) -> str:
    """The real model that serves whatever asks for this name: an alias's own, and for a retired one that which replaced it."""
    for _ in range(len(config.models) + 1):
        name = next((public for public, model in config.models.items() if name in model.aliases), name)
        successor = config.models.get(name, Model()).replaced_by
        if successor is None:
            return name
        name = successor
    raise ValueError(f"models are replaced by each other in a circle, `{name}` among them")
