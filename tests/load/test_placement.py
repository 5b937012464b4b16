from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.load.placement import Affinity, Placed, Replica, Rule, at_random, compare, hashed, least_loaded, spread
from gateway.load.scenario import Scenario
from gateway.mock.prefix_cache import PrefixCache
from tests.load.making import scenario


def pool(*in_flight: int) -> list[Replica]:
    return [Replica(f"r{number}", PrefixCache(100), in_flight=count) for number, count in enumerate(in_flight)]


def chosen(rule: Rule, replicas: Sequence[Replica], *prompts: Sequence[int]) -> list[str]:
    return [rule(prompt, replicas).name for prompt in prompts]


def test_a_call_holds_its_replica_until_it_ends() -> None:
    (replica,) = pool(0)

    replica.hold(5.0)
    replica.hold(2.0)
    assert (replica.in_flight, replica.given) == (2, 2)
    replica.settle(2.0)
    assert (replica.in_flight, replica.given) == (1, 2)
    replica.settle(9.0)
    assert replica.in_flight == 0


def test_random_is_even_and_the_same_again() -> None:
    first, second = (chosen(at_random(random.Random(1)), pool(0, 0, 0, 0), *[[1]] * 4_000) for _ in range(2))

    assert first == second
    assert all(first.count(f"r{number}") == pytest.approx(1_000, abs=110) for number in range(4))  # four standard deviations of 27


def test_least_loaded_takes_one_of_those_with_the_fewest() -> None:
    assert set(chosen(least_loaded(random.Random(1)), pool(3, 1, 2, 1), *[[1]] * 50)) == {"r1", "r3"}


def test_a_hash_keeps_together_what_begins_alike() -> None:
    replicas = pool(*[0] * 8)
    long = [[1, 2, number] for number in range(50)]
    others = [[1, number] for number in range(100, 400)]

    assert len(set(chosen(hashed(2), replicas, *long))) == 1
    assert len(set(chosen(hashed(3), replicas, *long))) == 8
    assert len(set(chosen(hashed(2), replicas, *others))) == 8
    assert chosen(hashed(2), replicas, [7]) == chosen(hashed(1), replicas, [7, 8])  # a short prompt is hashed whole


def test_affinity_is_the_gateways_own() -> None:
    """A prefix stays where it was, as long as that is not above the ceiling; of the names it knows every second, three at most."""
    rule = Affinity(random.Random(1), each=2, most=3)
    idle = pool(0, 0, 0)
    home = chosen(rule, idle, [1, 2, 3, 4, 5, 6, 7, 8])[0]

    assert set(chosen(rule, idle, *[[1, 2, 3, 4, 5, 6, 90, 91]] * 8)) == {home}
    busy = pool(*[10 if one.name == home else 0 for one in idle])
    assert chosen(rule, busy, [1, 2, 3, 4, 5, 6])[0] != home


def shared(count: int, **parts: Any) -> Scenario:
    """Prompts of 12,000 bytes: 3,000 tokens, all the same."""
    body = {"messages": [{"role": "user", "content": "abc " * 3_000}]}
    load = {"chat": {"burst": {"size": count}, "max_tokens": 11, "body": body}}
    return scenario(load=load, **parts)


def test_equal_prompts_are_computed_once_on_each_replica_they_come_to() -> None:
    """Each is 3,009 tokens, 94 blocks of 32 and one more: 3,000 words, the last blank, and eight tokens of the chat's template."""
    one = shared(8, backends={"mock": {"count": 4, "kv_tokens": 10_000}}, placements=["random", "least_loaded", "hash", "affinity"])

    placed = compare(one)

    assert list(placed) == ["random", "least_loaded", "hash", "affinity"]
    tokens = 3_009
    assert placed["hash"] == Placed(pytest.approx(7 * 94 * 32 / (8 * tokens)), 4.0)
    assert placed["least_loaded"] == Placed(pytest.approx(4 * 94 * 32 / (8 * tokens)), 1.0)
    assert placed["affinity"].hit_share >= placed["least_loaded"].hit_share


def test_a_cache_that_is_too_small_finds_only_what_it_has_room_for() -> None:
    one = shared(8, backends={"mock": {"count": 4, "kv_tokens": 320}}, placements=["hash"])

    assert compare(one)["hash"].hit_share == pytest.approx(7 * 320 / (8 * 3_009))


def test_a_call_that_has_ended_is_not_in_flight_any_more() -> None:
    """A call takes 0.05 s + 10 tokens at 50 a second. Where one comes each second, all replicas are idle every time, and chosen evenly."""
    asked = {"chat": {"constant": 1, "max_tokens": 11}}
    apart = scenario(load=asked, duration_s=400, backends={"mock": {"count": 2}}, placements=["least_loaded"])

    assert compare(apart)["least_loaded"].calls_spread == pytest.approx(1.0, abs=0.2)  # four standard deviations of 0.05


def test_models_are_placed_apart_and_the_c_mock_is_left_out() -> None:
    groups = {
        "a": {"count": 2, "model": "a"},
        "b": {"model": "b"},
        "c": {"kind": "c", "model": "c", "first_token_s": 0, "tokens_per_second": 100},
    }
    loads = {name: {"burst": {"size": 4}, "model": name} for name in groups}

    placed = compare(scenario(backends=groups, load=loads, placements=["least_loaded"]))

    assert placed == {"least_loaded": Placed(0.0, 1.0)}
    assert compare(scenario()) == {}


def test_the_spread_is_the_largest_over_the_mean() -> None:
    assert [spread(counts) for counts in ([3, 1, 2], [4, 4], [0, 8], [0, 0])] == [1.5, 1.0, 2.0, None]
