"""The gateway built from one configuration: a complete value that is swapped whole on reload."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.access.keys import Keys, principals
from gateway.config.schema import Backend as Spec
from gateway.config.schema import Config, Model, Price, Queue
from gateway.pool.backend import Backend, backend
from gateway.pool.discovery.discovery import replica
from gateway.pool.discovery.endpoint import Endpoint
from gateway.pool.replicas import Replicas
from gateway.serving.admission import Admission
from gateway.serving.retry import Retry
from gateway.wire.errors import ApiError
from gateway.wire.usage import Rates
from policies import registry
from policies.registry import Policy
from policies.values.plan import Plan


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model that backends serve. `public` is its name to callers."""

    public: str
    replicas: Replicas
    rates: Rates
    context: int | None
    retry: Retry
    admission: Admission | None

    @property
    def backends(self) -> tuple[Backend, ...]:
        """Its replicas, in configured order."""
        return self.replicas.backends


@dataclass(frozen=True, slots=True)
class VirtualModel:
    """A name behind which a policy picks a plan."""

    name: str
    policy: Policy
    plans: tuple[Plan, ...]
    models: tuple[RealModel, ...]
    deadline_ms: int | None


@dataclass(frozen=True, slots=True)
class State:
    """Everything a request needs, read-only. `names` holds real models, aliases and virtual models."""

    config: Config
    hash: str
    keys: Keys
    names: Mapping[str, RealModel | VirtualModel]
    backends: Mapping[str, Backend]

    def unanswered(self) -> list[str]:
        """Real models none of whose backends has answered yet."""
        real = {route.public: route for route in self.names.values() if isinstance(route, RealModel)}
        return [name for name, model in real.items() if not any(backend.answered for backend in model.backends)]

    def policy_for(self, route: VirtualModel, name: str) -> Policy:
        """A configured policy over another virtual model's plans. Raises ApiError 400 when there is none or it does not fit."""
        spec = self.config.policies.get(name)
        if spec is None or registry.problems(spec.type, spec.params, [plan.name for plan in route.plans]):
            raise ApiError(400, "caller_invalid_value", "No such policy fits this model.", param="trilemma.policy")
        return registry.policy(name, spec.type, spec.params, spec.floor, spec.seed)


Urls = Callable[[str], str]
Found = Callable[[str], Sequence[Endpoint]]


def build(config: Config, config_hash: str, managed_url: Urls, before: State | None = None, found: Found = lambda _: ()) -> State:
    """A state from a checked configuration.

    managed_url: where a managed backend listens. found: the replicas of a discovered one. before: the state until now; a backend, a queue
    or a set of replicas that is the same goes on, with its counts. Raises ValueError for a policy that cannot be built.
    """
    backends: dict[str, Backend] = {}
    for name, spec in config.backends.items():
        for fresh in _replicas(name, spec, managed_url, found):
            old = before.backends.get(fresh.name) if before is not None else None
            same = old is not None and (old.spec, old.url, old.authorization) == (fresh.spec, fresh.url, fresh.authorization)
            backends[fresh.name] = old if same and old is not None else fresh
    real = _real_models(config, backends, before)
    names: dict[str, RealModel | VirtualModel] = dict(real)
    for public, model in config.models.items():
        names.update(dict.fromkeys(model.aliases, real[public]))
    for name, spec_v in config.virtual_models.items():
        plans = tuple(Plan(plan, p.model, p.strategy) for plan, p in spec_v.plans.items())
        names[name] = VirtualModel(
            name=name,
            policy=_policy(config, spec_v.policy),
            plans=plans,
            models=tuple(real[_unaliased(config, plan.model)] for plan in plans),
            deadline_ms=spec_v.caps.deadline_ms,
        )
    return State(config, config_hash, principals(config.keys, names), names, backends)


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
        old = before.names.get(public) if before is not None else None
        same = isinstance(old, RealModel) and old.backends == tuple(replicas)
        found[public] = RealModel(
            public=public,
            replicas=old.replicas if same and isinstance(old, RealModel) else Replicas(replicas),
            rates=_rates(card.price),
            context=card.context,
            retry=Retry(card.attempts, card.retry_wait_s),
            admission=_admission(card.queue, old.admission if isinstance(old, RealModel) else None),
        )
    return found


def _admission(spec: Queue | None, running: Admission | None) -> Admission | None:
    """The queue of a model; one that runs goes on with new bounds, so that no call is counted twice or lost."""
    if spec is None:
        return None
    if running is not None:
        running.resize(slots=spec.slots, room=spec.room)
        return running
    return Admission(time.monotonic, slots=spec.slots, room=spec.room, wait_s=spec.wait_s, weights=spec.weights)


def _rates(price: Price) -> Rates:
    cached = price.input if price.cached_input is None else price.cached_input
    return Rates(input=price.input, cached_input=cached, output=price.output)


def _unaliased(config: Config, name: str) -> str:
    for public, model in config.models.items():
        if name in model.aliases:
            return public
    return name


def _policy(config: Config, name: str) -> Policy:
    spec = config.policies.get(name)
    if spec is None:
        return registry.policy(name, name, {}, 0.0, 0)
    return registry.policy(name, spec.type, spec.params, spec.floor, spec.seed)
