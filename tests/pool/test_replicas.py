"""Which replica a call goes to, when some of them may not serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from gateway.pool.backend import Backend
from gateway.pool.breaker import Breaker
from gateway.pool.replicas import NoneLive, Replicas
from tests.pool.making import made


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> list[Backend]:
    """Three backends that have answered, engines of which it is known what they list."""
    found = [made(name, engine="vllm") for name in "abc"]
    for each in found:
        each.answered = True
        each.breaker = Breaker(clock)
    return found


def replicas_of(backends: Sequence[Backend]) -> Replicas:
    return Replicas("m", backends, random=Random(0))


def given(replicas: Replicas, calls: int = 60) -> set[str]:
    """Who gets calls that end at once."""
    return set(Counter(replicas.pick(()).name for _ in range(calls)))


def lists(backend: Backend, *cards: dict[str, object]) -> None:
    backend.fingerprints.see(backend.adapter, backend.models, backend.adapter.models({"data": list(cards)}))


def becomes_another(backend: Backend) -> None:
    lists(backend, {"id": "m", "root": "/one"})
    lists(backend, {"id": "m", "root": "/two"})


@pytest.mark.parametrize("how", ["draining", "disabled", "another model", "open", "unreachable"])
def test_who_may_not_serve_gets_nothing(pool: list[Backend], how: str) -> None:
    replicas = replicas_of(pool)
    assert given(replicas) == {"a", "b", "c"}

    if how == "another model":
        becomes_another(pool[0])
    elif how == "open":
        pool[0].breaker.faulted(pool[0].breaker.begin(), "connect")
    elif how == "unreachable":
        pool[0].breaker.unreachable(7.0)
    else:
        setattr(pool[0], how, True)

    assert given(replicas) == {"b", "c"}


@pytest.mark.parametrize("how", ["draining", "disabled", "another model"])
def test_when_none_may_serve_there_is_no_telling_when(pool: list[Backend], how: str) -> None:
    for each in pool:
        if how == "another model":
            becomes_another(each)
        else:
            setattr(each, how, True)

    with pytest.raises(NoneLive) as none:
        replicas_of(pool).pick(())

    assert none.value.wait_s is None


def test_another_model_behind_one_name_leaves_the_backends_other_models_alone() -> None:
    one = made("a", engine="vllm", models={"m": "m", "n": "n"})
    one.answered = True
    lists(one, {"id": "m", "root": "/m"}, {"id": "n", "root": "/n"})
    lists(one, {"id": "m", "root": "/m"}, {"id": "n", "root": "/other"})

    assert Replicas("m", [one]).pick(()) is one
    with pytest.raises(NoneLive):
        Replicas("n", [one]).pick(())


def test_when_all_cool_the_soonest_is_tried_early(pool: list[Backend]) -> None:
    for each, pause in zip(pool, (3, 1, 2), strict=True):
        each.breaker = Breaker(Clock(), first_s=pause)
        each.breaker.faulted(each.breaker.begin(), "connect")

    assert replicas_of(pool).pick(()).name == "b"
    assert replicas_of(pool).pick({"b"}).name == "c"


def test_but_none_that_asked_for_its_pause_and_none_that_cannot_be_reached(pool: list[Backend]) -> None:
    a, b, c = pool
    a.breaker.faulted(a.breaker.begin(), "rate_limit", 2.0)
    b.breaker.unreachable(7.0)
    c.breaker.faulted(c.breaker.begin(), "connect")
    assert replicas_of(pool).pick(()) is c

    c.breaker.begin(early=True)
    with pytest.raises(NoneLive) as none:
        replicas_of([a, b]).pick(())

    assert none.value.wait_s == 2.0


# What is remembered while the others are away


LONG = {number: f"conversation {number}: ".encode() + b"words " * 400 for number in range(40)}


def cool(backends: Sequence[Backend], seconds: float) -> None:
    for each in backends:
        each.breaker.faulted(each.breaker.begin(), "rate_limit", seconds)


def recover(backends: Sequence[Backend], clock: Clock) -> None:
    clock.time += 100.0
    for each in backends:
        each.breaker.succeeded(each.breaker.begin())


def test_prompts_that_the_only_live_replica_got_go_there_when_the_others_are_back(pool: list[Backend], clock: Clock) -> None:
    replicas = replicas_of(pool)
    cool(pool[1:], 50.0)
    for prompt in LONG.values():
        assert replicas.pick((), None, prompt) is pool[0]
    recover(pool[1:], clock)

    assert {replicas.pick((), None, prompt).name for prompt in LONG.values()} == {"a"}


def test_sessions_that_began_meanwhile_stay_and_those_that_begin_then_go_to_the_others(pool: list[Backend], clock: Clock) -> None:
    replicas = replicas_of(pool)
    cool(pool[1:], 50.0)
    for number in LONG:
        assert replicas.pick((), f"old {number}") is pool[0]
    recover(pool[1:], clock)

    assert {replicas.pick((), f"old {number}").name for number in LONG} == {"a"}
    assert {replicas.pick((), f"new {number}").name for number in LONG} == {"b", "c"}


def test_a_session_whose_home_cools_for_a_moment_goes_home_again(pool: list[Backend], clock: Clock) -> None:
    replicas = replicas_of(pool)
    home = replicas.pick((), "s")
    cool([home], 50.0)
    away = {replicas.pick((), "s").name for _ in range(10)}
    assert len(away) == 1
    assert away != {home.name}
    recover([home], clock)

    assert replicas.pick((), "s") is home


def test_a_lone_backend_needs_no_memory(pool: list[Backend]) -> None:
    replicas = replicas_of(pool[:1])
    for number, prompt in LONG.items():
        replicas.pick((), f"s{number}", prompt)
        replicas.pick((), None, prompt)

    assert len(replicas._sessions) == len(replicas._prefixes) == 0


def test_equal_prompts_with_different_salts_are_different_prompts(pool: list[Backend]) -> None:
    """The engine shares no cache between them: a tenant's prompt need not go where another one's equal prompt went."""
    replicas = replicas_of(pool)
    tenants = [b"tenant %d" % number for number in range(30)]
    homes = {salt: replicas.pick((), None, LONG[0], salt).name for salt in tenants}

    assert set(homes.values()) == {"a", "b", "c"}
    assert {salt: replicas.pick((), None, LONG[0], salt).name for salt in tenants} == homes
