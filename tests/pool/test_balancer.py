from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pool.balancer import Balancer, under_ceiling


@dataclass
class Engine:
    name: str
    weight: float = 1.0
    in_flight: int = 0
    queued: float = 0.0


def engines(*weights: float) -> list[Engine]:
    return [Engine(f"engine-{number}", weight) for number, weight in enumerate(weights)]


def chi_square(counts: Sequence[float], weights: Sequence[float]) -> float:
    expected = [sum(counts) * weight / sum(weights) for weight in weights]
    return sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True))


# The value that a chi-square variable with so many degrees of freedom passes once in 1,000.
CRITICAL = {1: 10.83, 2: 13.82, 3: 16.27}


def test_of_one_there_is_no_choice() -> None:
    (only,) = engines(1)
    only.in_flight = 1_000

    assert Balancer(Random(0)).choose([only], ["another"]) is only


@pytest.mark.parametrize("weights", [(1, 1), (1, 3), (1, 1, 1, 1), (1, 2, 3), (5, 0.5, 2.5), (1, 100)])
def test_an_idle_pool_shares_by_weight(weights: tuple[float, ...]) -> None:
    """One call at a time, each ended before the next."""
    pool, balancer = engines(*weights), Balancer(Random(1))

    counts = Counter(balancer.choose(pool).name for _ in range(10_000))

    assert chi_square([counts[each.name] for each in pool], weights) < CRITICAL[len(weights) - 1]


@pytest.mark.parametrize("weights", [(1, 3), (1, 1, 1, 1), (1, 2, 3), (1, 100)])
@pytest.mark.parametrize("at_once", [2, 8, 200])
def test_a_busy_pool_shares_by_weight(weights: tuple[float, ...], at_once: int) -> None:
    """So many calls at once; they end in random order."""
    pool, random = engines(*weights), Random(2)
    balancer = Balancer(random)
    running: list[Engine] = []
    held: Counter[str] = Counter()
    steps = 4_000
    for _ in range(steps):
        if len(running) == at_once:
            running.pop(random.randrange(at_once)).in_flight -= 1
        chosen = balancer.choose(pool)
        chosen.in_flight += 1
        running.append(chosen)
        held.update(engine.name for engine in pool for _ in range(engine.in_flight))

    # Calls in flight on average: the share, or what is within one call of it.
    for engine in pool:
        share = at_once * engine.weight / sum(weights)
        assert abs(held[engine.name] / steps - share) < max(0.6, 0.1 * share)


def test_the_less_loaded_of_two_is_chosen() -> None:
    pool = engines(1, 1)
    pool[0].in_flight = 1

    assert {Balancer(Random(seed)).choose(pool).name for seed in range(50)} == {"engine-1"}


def test_two_different_ones_are_compared() -> None:
    """Of three, two of the three pairs hold the one with less to do (and with 13 calls each may have 6)."""
    pool = engines(1, 1, 1)
    pool[0].in_flight, pool[1].in_flight, pool[2].in_flight = 4, 4, 3

    counts = Counter(Balancer(Random(seed)).choose(pool).name for seed in range(3_000))

    assert chi_square([counts["engine-0"] + counts["engine-1"], counts["engine-2"]], (1, 2)) < CRITICAL[1]


def test_own_calls_count_before_the_engines_queue() -> None:
    pool = engines(1, 1)
    pool[0].in_flight, pool[1].in_flight = 5, 4
    pool[1].queued = 50.0

    assert {Balancer(Random(seed)).choose(pool).name for seed in range(50)} == {"engine-1"}


def test_equals_are_told_apart_by_the_engines_queue() -> None:
    pool = engines(1, 1)
    pool[0].queued = 3.0

    balancer = Balancer(Random(0))
    assert {balancer.choose(pool).name for _ in range(50)} == {"engine-1"}


def test_what_is_left_of_an_old_queue_is_no_reason() -> None:
    pool = engines(1, 1)
    pool[0].queued = 0.4

    counts = Counter(Balancer(Random(seed)).choose(pool).name for seed in range(1_000))

    assert chi_square([counts[each.name] for each in pool], (1, 1)) < CRITICAL[1]


def test_calls_one_by_one_leave_nobody_idle() -> None:
    """100 calls, one after the other: what a pool sees at night."""
    pool, balancer = engines(1, 1, 1, 1), Balancer(Random(3))

    counts = Counter(balancer.choose(pool).name for _ in range(100))

    assert max(counts.values()) <= 1.25 * 25
    assert min(counts.values()) >= 0.75 * 25


def test_a_replica_that_joins_is_not_flooded() -> None:
    pool, balancer = engines(1, 1, 1), Balancer(Random(4))
    for _ in range(150):
        balancer.choose(pool[:2])

    counts = Counter(balancer.choose(pool).name for _ in range(60))

    assert 15 <= counts["engine-2"] <= 25


def test_the_preferred_is_taken_while_its_load_allows_it() -> None:
    """Of 4 with 7 calls in flight each may have ceil(1.25 * 8 / 4) = 3."""
    pool, balancer = engines(1, 1, 1, 1), Balancer(Random(5))
    for engine, calls in zip(pool, (2, 2, 2, 1), strict=True):
        engine.in_flight = calls

    assert balancer.choose(pool, ["engine-1"]).name == "engine-1"

    pool[1].in_flight, pool[2].in_flight = 3, 1
    assert balancer.choose(pool, ["engine-1"]).name != "engine-1"
    assert balancer.choose(pool, ["gone", "engine-1", "engine-2"]).name == "engine-2"


def test_preferences_are_read_no_further_than_needed() -> None:
    def names() -> Sequence[str]:
        yield "engine-0"
        raise AssertionError("read on")

    pool = engines(1, 1)

    assert Balancer(Random(0)).choose(pool, names()) is pool[0]


def test_another_ceiling_may_be_set() -> None:
    """3 calls on 4 replicas: 2.0 times the mean is 1.5, so 2 calls; 1.25 times is less than 1, so 1 call."""
    pool = engines(1, 1, 1, 1)
    pool[0].in_flight = pool[1].in_flight = 1

    assert Balancer(Random(0), ceiling=2.0).choose(pool, ["engine-0"]) is pool[0]
    assert Balancer(Random(0)).choose(pool, ["engine-0"]) is not pool[0]


def test_no_choice_lifts_a_replica_over_the_ceiling() -> None:
    """Not even two unlucky draws: of these four only the idle ones are under ceil(1.25 * 21 / 4) = 7."""
    pool = engines(1, 1, 1, 1)
    pool[0].in_flight = pool[1].in_flight = 10

    assert {Balancer(Random(seed)).choose(pool, ["engine-0"]).name for seed in range(50)} == {"engine-2", "engine-3"}


def test_the_ceiling_is_not_lifted_by_an_error_of_rounding() -> None:
    """1.25 * 8 * 0.1 / 1 is 1, not 1 and a bit."""
    pool = engines(*[0.1] * 10)
    for engine in pool[:7]:
        engine.in_flight = 1

    assert [engine.name for engine in under_ceiling(pool)] == ["engine-7", "engine-8", "engine-9"]


@settings(max_examples=60, deadline=None)
@given(
    weights=st.lists(st.sampled_from([0.1, 0.5, 1.0, 1.0, 3.0, 7.3, 100.0]), min_size=2, max_size=9),
    events=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(0, 2**30)), min_size=50, max_size=300),
    seed=st.integers(0, 2**30),
)
def test_the_ceiling_holds_under_any_arrivals_and_departures(weights: list[float], events: list[tuple[int, int, int]], seed: int) -> None:
    """Whenever a call is placed, its replica then has at most 1.25 times its share of the load, rounded up to a whole call."""
    pool, balancer = engines(*weights), Balancer(Random(seed))
    running: list[Engine] = []
    for kind, favourite, draw in events:
        if kind == 0 and running:
            running.pop(draw % len(running)).in_flight -= 1
            continue
        chosen = balancer.choose(pool, [f"engine-{favourite}"] if kind > 1 else ())
        chosen.in_flight += 1
        running.append(chosen)
        share = len(running) * chosen.weight / sum(weights)
        assert chosen.in_flight < 1.25 * share + 1
        assert chosen.in_flight <= math.ceil(1.25 * share)
