"""A scenario: what runs, who asks what and when, what goes wrong, and what has to hold. Times are seconds from the start of the load."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import yaml

from gateway.load.faults import AnyFault, Lasting, Scripted
from gateway.load.traces import TRACES
from gateway.mock.behaviour import Behaviour
from gateway.mock.prefix_cache import BLOCK_TOKENS

Placement = Literal["affinity", "random", "least_loaded", "hash"]
Range = tuple[float, float]
Count = int | tuple[int, int]
"""A number, or the bounds (both included) of one drawn evenly."""


class ScenarioError(Exception):
    """The scenario cannot be used; the text says why."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Slo(_Part, frozen=True, kw_only=True):
    """A complete answer is good when its end and, of a stream, its first event came within these, counted from when it was due."""

    ttft_s: float = 5.0
    total_s: float = 60.0


class Group(_Part, frozen=True, kw_only=True):
    """Backends of a kind: `count` processes that serve `model`. `mock` is `trilemma mock-backend`, `c` is loadtests/c/mock.c.

    first_token_s, tokens_per_second: of a healthy answer; the C mock knows 0 and 0 (at once) or 100 tokens a second, always 128 tokens.
    prefill_tokens_per_second: prompt tokens that are not cached delay the first token; 0: they do not. kv_tokens: room of the prefix cache.
    behaviour: how the mock answers in health, beyond that. config: more keys of the backend in the gateway's configuration.
    """

    count: int = 1
    model: str = "mock"
    kind: Literal["mock", "c"] = "mock"
    first_token_s: float = 0.05
    tokens_per_second: float = 50.0
    prefill_tokens_per_second: float = 0.0
    kv_tokens: int = 46_592
    behaviour: Behaviour | None = None
    config: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError("`count` must be at least 1")
        if self.kv_tokens < BLOCK_TOKENS:
            raise ValueError(f"`kv_tokens` must be at least {BLOCK_TOKENS}, one block")
        if self.kind == "c" and (self.first_s(1) or self.tokens_per_second not in (0, 100) or self.behaviour is not None):
            raise ValueError("the C mock takes first_token_s 0, tokens_per_second 0 or 100, no prefill and no behaviour")

    def first_s(self, uncached: int) -> float:
        """How long a healthy answer takes to its first token, when so many tokens of the prompt are not cached."""
        return self.first_token_s + (uncached / self.prefill_tokens_per_second if self.prefill_tokens_per_second else 0.0)

    def whole_s(self, uncached: int, output_tokens: int) -> float:
        """How long a healthy answer takes to its last token. Of the C mock's only the first counts."""
        paced = self.kind == "mock" and self.tokens_per_second
        return self.first_s(uncached) + ((output_tokens - 1) / self.tokens_per_second if paced else 0.0)


class Tenant(_Part, frozen=True, kw_only=True):
    """A caller. share: of the requests; weight: of what is served when not all can be; key: more keys of its entry in `keys`."""

    share: float = 1.0
    weight: float = 1.0
    key: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.share < 0 or self.weight <= 0:
            raise ValueError("`share` must not be below 0, `weight` must be above 0")


class Burst(_Part, frozen=True, kw_only=True):
    """`size` requests at once, at each of these times."""

    size: int
    at: tuple[float, ...] = (0.0,)


class Replay(_Part, frozen=True, kw_only=True):
    """A recorded trace, its window stretched or squeezed to the time of the load. share: every 1/share-th request is asked."""

    name: str
    window_s: Range | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in TRACES:
            raise ValueError(f"there is no trace `{self.name}`; there are {', '.join(TRACES)}")
        if not 0 < self.share <= 1:
            raise ValueError("`share` must be above 0, at most 1")


class Leave(_Part, frozen=True, kw_only=True):
    """A share of the callers leaves: after so many events, or so many seconds after asking, or between two moments of the load."""

    share: float = 1.0
    after_events: tuple[int, int] | None = None
    after_s: Range | None = None
    between: Range | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.after_events, self.after_s, self.between)) != 1:
            raise ValueError("give one of `after_events`, `after_s`, `between`")


class Slow(_Part, frozen=True, kw_only=True):
    """A share of the callers takes no more than so many bytes a second."""

    share: float = 1.0
    bytes_per_s: float


class Load(_Part, frozen=True, kw_only=True):
    """One kind of traffic; exactly one of constant, poisson (requests a second), burst and trace says when.

    from_s, for_s: when it begins and how long it lasts (default: the rest). stream: share of streams. prompt_tokens (or prompt_bytes),
    max_tokens: as given, unless the trace says. usage: streams ask for it. body, headers: go into each request. tenants: shares other than
    the scenario's.
    """

    constant: float | None = None
    poisson: float | None = None
    burst: Burst | None = None
    trace: Replay | None = None
    from_s: float = 0.0
    for_s: float | None = None
    model: str = "mock"
    stream: float = 1.0
    prompt_tokens: Count = 200
    prompt_bytes: int | None = None
    max_tokens: Count = 100
    usage: bool = False
    body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    tenants: dict[str, float] | None = None
    leave: Leave | None = None
    slow: Slow | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.constant, self.poisson, self.burst, self.trace)) != 1:
            raise ValueError("give one of `constant`, `poisson`, `burst`, `trace`")
        if any(rate is not None and rate <= 0 for rate in (self.constant, self.poisson)):
            raise ValueError("a rate must be above 0")
        if not 0 <= self.stream <= 1:
            raise ValueError("`stream` is a share: from 0 to 1")


class Gateway(_Part, frozen=True, kw_only=True):
    """The gateway that is started. config: laid over what is generated (mappings are merged, the rest is replaced)."""

    config: dict[str, Any] = {}


class Target(_Part, frozen=True, kw_only=True):
    """A gateway that runs already. key_env: the environment variable that holds the key."""

    url: str
    key_env: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError("`url` must be http://HOST[:PORT] or https://..., without a path")

    def key(self) -> str:
        """Its key, "" without one. Raises ScenarioError."""
        if self.key_env is None:
            return ""
        if not os.environ.get(self.key_env):
            raise ScenarioError(f"target: the environment variable {self.key_env} is not set")
        return os.environ[self.key_env]


class Bound(_Part, frozen=True, kw_only=True):
    """What a figure has to keep."""

    min: float | None = None
    max: float | None = None

    def keeps(self, value: float | None) -> bool:
        """A figure that could not be had keeps nothing."""
        return value is not None and (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


class Scenario(_Part, frozen=True, kw_only=True):
    """The whole of it. patience_s: after this, counted from when it was due, a request without end counts as hung.

    pin: with two CPUs or more, the gateway has the last one to itself. settle_s: how long the gateway may take, once all callers are done,
    until nothing is in flight. placements: ways to choose the replica that are compared with the gateway's, by simulation (placement.py).
    """

    name: str
    about: str
    duration_s: float
    load: dict[str, Load]
    seed: int = 1
    slo: Slo = Slo()
    patience_s: float = 60.0
    settle_s: float = 10.0
    pin: bool = True
    backends: dict[str, Group] = {}
    gateway: Gateway = Gateway()
    target: Target | None = None
    tenants: dict[str, Tenant] = msgspec.field(default_factory=lambda: {"default": Tenant()})
    faults: tuple[AnyFault, ...] = ()
    placements: tuple[Placement, ...] = ()
    expect: dict[str, float | Bound] = {}

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ValueError(problem)

    def _problems(self) -> Iterator[str]:
        if (self.target is None) != bool(self.backends):
            yield "give `backends` (a gateway is started over them) or `target`"
        if not self.load or self.duration_s <= 0:
            yield "give at least one `load`, and a `duration_s` above 0"
        if self.placements and not self.backends:
            yield "`placements` needs `backends`: of those that run elsewhere nothing is known"
        known = self.instances()
        for fault in self.faults:
            hit = self.hit_by(fault)
            if not hit:
                yield f"faults: there is no backend `{fault.backend}`; there are {', '.join(known)}"
            if isinstance(fault, Scripted) and any(known[name].kind == "c" for name in hit):
                yield f"faults: the C mock of `{fault.backend}` follows no script"
            if isinstance(fault, Lasting) and fault.for_s <= 0:
                yield "faults: `for_s` must be above 0"
        for name, load in self.load.items():
            if self.backends and load.model not in {group.model for group in self.backends.values()}:
                yield f"load.{name}: no backend serves `{load.model}`"
            if load.tenants is not None and not set(load.tenants) <= set(self.tenants):
                yield f"load.{name}: unknown tenants; there are {', '.join(self.tenants)}"
            if load.from_s >= self.duration_s or (load.for_s is not None and load.for_s <= 0):
                yield f"load.{name}: it would never begin"

    def instances(self) -> Mapping[str, Group]:
        """Every backend by name: NAME, or NAME-0, NAME-1, ... where there are several."""
        return {
            name if group.count == 1 else f"{name}-{number}": group
            for name, group in self.backends.items()
            for number in range(group.count)
        }

    def hit_by(self, fault: AnyFault) -> list[str]:
        """The backends that a fault concerns: one, or a group."""
        group = self.backends.get(fault.backend)
        wanted = {fault.backend} if group is None or group.count == 1 else {f"{fault.backend}-{n}" for n in range(group.count)}
        return [name for name in self.instances() if name in wanted]

    def healthy(self, model: str) -> Group | None:
        """The first group that serves the model: what its answers take in health."""
        return next((group for group in self.backends.values() if group.model == model), None)

    def bounds(self) -> Mapping[str, Bound]:
        """What is expected, by figure."""
        return {name: one if isinstance(one, Bound) else Bound(min=one, max=one) for name, one in self.expect.items()}


def read_scenario(file: Path) -> Scenario:
    """A scenario from a YAML file. Raises ScenarioError."""
    try:
        return msgspec.convert(yaml.safe_load(file.read_bytes()), Scenario)
    except OSError as problem:
        raise ScenarioError(f"{file}: {problem.strerror}") from None
    except (yaml.YAMLError, msgspec.ValidationError) as problem:
        raise ScenarioError(f"{file}: {problem}") from None
