"""What other ways to choose the replica would have made of the same requests: a simulation with the mock's own prefix cache.

Every request comes when it is due, with the prompt that is sent in the run, and holds its replica for as long as a healthy mock would:

    first_token_s + uncached tokens / prefill_tokens_per_second + (output tokens - 1) / tokens_per_second
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
import orjson

from gateway.load.arrivals import Ask, asks, body
from gateway.load.scenario import Group, Scenario
from gateway.mock.generation import render
from gateway.mock.prefix_cache import BLOCK_TOKENS, PrefixCache, block_names, tokens_saved
from gateway.pool.affinity import PrefixMap
from gateway.pool.balancer import Balancer

# The gateway names blocks of 1,024 bytes, at most 64 of a prompt; a made-up token is four bytes.
_NAMED: Final = 256 // BLOCK_TOKENS
_MOST_NAMES: Final = 64
# Plain hashing looks at the first 1,024 tokens: in traces with a system prompt, fewer are the same in every prompt.
_HASHED: Final = 1_024 // BLOCK_TOKENS


@dataclass(slots=True)
class Replica:
    """A simulated engine. given: calls so far; ends: a heap of when those in flight will end."""

    name: str
    cache: PrefixCache
    weight: float = 1.0
    in_flight: int = 0
    queued: float = 0.0
    given: int = 0
    ends: list[float] = field(default_factory=list)

    def settle(self, now: float) -> None:
        """Takes out what has ended."""
        while self.ends and self.ends[0] <= now:
            heapq.heappop(self.ends)
        self.in_flight = len(self.ends)

    def hold(self, until: float) -> None:
        """One more call, which ends then."""
        heapq.heappush(self.ends, until)
        self.in_flight += 1
        self.given += 1


R = TypeVar("R", bound=Replica)


class Rule(Protocol):
    """How a replica is chosen. names: of the prompt's leading blocks, each for all up to it."""

    def __call__(self, names: Sequence[int], replicas: Sequence[R], /) -> R: ...


class Affinity:
    """The gateway's own rule. It knows every `each`-th of the names, `most` of them."""

    def __init__(self, dice: random.Random, *, each: int = 1, most: int = _MOST_NAMES) -> None:
        self._balancer = Balancer(dice)
        self._prefixes = PrefixMap()
        self._each = each
        self._most = most

    def __call__(self, names: Sequence[int], replicas: Sequence[R], /) -> R:
        known = names[self._each - 1 :: self._each][: self._most]
        preferred = self._prefixes.prefer(known, [replica.name for replica in replicas]) if known else None
        chosen = self._balancer.choose(replicas, () if preferred is None else (preferred,))
        self._prefixes.note(known, chosen.name)
        return chosen


def at_random(dice: random.Random) -> Rule:
    """Each as likely as the others."""

    def choose(_: Sequence[int], replicas: Sequence[R], /) -> R:
        return dice.choice(replicas)

    return choose


def least_loaded(dice: random.Random) -> Rule:
    """One with the fewest calls in flight."""

    def choose(_: Sequence[int], replicas: Sequence[R], /) -> R:
        return min(replicas, key=lambda replica: (replica.in_flight, dice.random()))

    return choose


def hashed(blocks: int) -> Rule:
    """By a hash of the leading blocks."""

    def choose(names: Sequence[int], replicas: Sequence[R], /) -> R:
        return replicas[hash(tuple(names[:blocks][-1:])) % len(replicas)]

    return choose


class Placed(msgspec.Struct, frozen=True):
    """What one rule did. hit_share: of all prompt tokens, those cached where they went; calls_spread: largest replica over the mean."""

    hit_share: float
    calls_spread: float


class _Call(NamedTuple):
    at: float
    tokens: int
    names: list[int]
    output_tokens: int


class _Pool(NamedTuple):
    """The replicas of a model, by name, and all calls for it."""

    groups: Mapping[str, Group]
    calls: Sequence[_Call]


def compare(scenario: Scenario) -> dict[str, Placed]:
    """What each rule of `placements` would have done with the scenario's requests, over all models whose replicas are mocks."""
    if not scenario.placements:
        return {}
    made = asks(scenario)
    pools = []
    for model in sorted({load.model for load in scenario.load.values()}):
        groups = {name: group for name, group in scenario.instances().items() if group.model == model}
        if all(group.kind == "mock" for group in groups.values()):
            pools.append(_Pool(groups, [_call(ask, scenario) for ask in made if scenario.load[ask.load].model == model]))
    return {rule: _placed(rule, scenario.seed, pools) for rule in scenario.placements}


def spread(counts: Sequence[int]) -> float | None:
    """The largest over the mean; None where there is nothing to share."""
    return max(counts) * len(counts) / sum(counts) if any(counts) else None


def _call(ask: Ask, scenario: Scenario) -> _Call:
    pieces = render(orjson.loads(body(ask, scenario.load[ask.load])))
    return _Call(ask.at, len(pieces), block_names(pieces), ask.max_tokens)


def _rule(name: str, seed: int) -> Rule:
    dice = random.Random(f"{seed}/{name}")  # noqa: S311 - repeatable figures are the point
    match name:
        case "affinity":
            return Affinity(dice, each=_NAMED)
        case "random":
            return at_random(dice)
        case "least_loaded":
            return least_loaded(dice)
        case _:
            return hashed(_HASHED)


def _placed(name: str, seed: int, pools: Iterable[_Pool]) -> Placed:
    hits = tokens = 0
    spreads = []
    for pool in pools:
        rule = _rule(name, seed)
        replicas = [Replica(one, PrefixCache(group.kv_tokens // BLOCK_TOKENS)) for one, group in pool.groups.items()]
        for call in pool.calls:
            for replica in replicas:
                replica.settle(call.at)
            chosen = rule(call.names, replicas)
            cached = tokens_saved(chosen.cache.use(call.names), call.tokens)
            chosen.hold(call.at + pool.groups[chosen.name].whole_s(call.tokens - cached, call.output_tokens))
            hits += cached
            tokens += call.tokens
        spreads.append(spread([replica.given for replica in replicas]) or 1.0)
    return Placed(hits / tokens if tokens else 0.0, max(spreads, default=1.0))
