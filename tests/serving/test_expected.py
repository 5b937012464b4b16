"""What plans are expected to take, learnt from what calls took."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gateway.config.load import parse
from gateway.serving.call import Receipt, Tried, UpstreamCall
from gateway.serving.choice import Choice, Decided
from gateway.serving.expected import Expectations
from gateway.serving.state import RealModel, build
from gateway.wire.usage import Rates, Usage
from models.response import Response
from policies.values.plan import Plan
from policies.values.prompt import Prompt
from policies.values.situation import Prices, Standing

PLAN = Plan("p", "m")


def model(**settings: Any) -> RealModel:
    config = {
        "version": 1,
        "backends": {name: {"url": f"http://{name}", "models": {"m": "m"}} for name in ("a", "b")},
        "models": {"m": {"price": {"input": 1, "cached_input": 0.1, "output": 2}, **settings}},
        "keys": [{"name": "k", "sha256": "a" * 64}],
    }
    found = build(parse(json.dumps(config), {}).config, "hash", lambda name: name).names["m"]
    assert isinstance(found, RealModel)
    return found


def receipt(plan: Plan = PLAN, *, backend: str = "a", tokens: int = 100, seconds: float = 2.0, longest: int | None = None) -> Receipt:
    """An answer of so many tokens, whose stream began after a fifth of the time."""
    usage = Usage(prompt=1_000, cached=0, completion=tokens)
    call = UpstreamCall(backend, "m", 0.0, first=seconds / 5, ended=seconds, status=200, outcome="ok", usage=usage, streamed=True)
    choice = Choice(Decided((), Prices()), plan, longest=longest)
    return Receipt("r", "d", 0.0, usage=usage, outcome="ok", calls=[call], choice=choice)


def test_cost_follows_the_answers_that_came() -> None:
    """1,000 tokens of prompt cost 0.001 USD; 100 tokens of answer 0.0002."""
    known, one = Expectations(), model()
    for _ in range(200):
        known.ended(receipt())

    cost, _ = known.of(PLAN, one, Prompt(tokens=1_000), None, None)
    assert cost == pytest.approx(0.0012, rel=0.02)
    assert known.of(PLAN, one, Prompt(tokens=1_000), 50, None)[0] == pytest.approx(0.0011, rel=0.02)  # cut by the plan
    assert known.of(PLAN, one, Prompt(tokens=1_000, max_tokens=50), None, None)[0] == pytest.approx(0.0011, rel=0.02)  # by the caller


def test_a_plan_that_is_new_is_not_taken_to_talk_more_than_others() -> None:
    known, one = Expectations(), model()
    for _ in range(200):
        known.ended(receipt(Plan("old", "other")))

    assert known.of(PLAN, one, Prompt(tokens=1_000), None, None)[0] == pytest.approx(0.0012, rel=0.02)


def test_what_its_conversation_left_in_a_plans_cache_is_cheaper_there_alone() -> None:
    known, one = Expectations(), model()
    for _ in range(200):
        known.ended(receipt())

    here = known.of(PLAN, one, Prompt(tokens=1_000), None, Standing("p", 5.0, tokens=800))
    elsewhere = known.of(PLAN, one, Prompt(tokens=1_000), None, Standing("q", 5.0, tokens=800))
    assert elsewhere[0] - here[0] == pytest.approx(800 * 0.9 / 1e6)
    assert here[1] <= elsewhere[1]


def test_latency_is_that_of_the_replica_with_the_least_to_do() -> None:
    known, one = Expectations(), model()
    for _ in range(200):
        known.ended(receipt(backend="a", seconds=2.0))
        known.ended(receipt(backend="b", seconds=6.0))

    a, b = one.backends
    a.in_flight, b.in_flight = 0, 3
    assert known.of(PLAN, one, Prompt(tokens=1_000), None, None)[1] == pytest.approx(2.0, rel=0.1)
    a.in_flight, b.in_flight = 9, 0
    assert known.of(PLAN, one, Prompt(tokens=1_000), None, None)[1] == pytest.approx(6.0, rel=0.1)


def test_what_relayed_requests_took_is_known_to_the_next_decision() -> None:
    """No policy chose for them; of a thousand the newest count, which were slower."""
    known, one = Expectations(), model()
    for number in range(1_000):
        relayed = receipt(seconds=2.0 if number < 900 else 6.0)
        relayed.choice = None
        known.ended(relayed)

    one.backends[1].in_flight = 9
    assert known.of(PLAN, one, Prompt(tokens=1_000, max_tokens=100), None, None)[1] > 4.0


def test_replicas_that_come_and_go_do_not_fill_the_memory() -> None:
    known, one = Expectations(), model()
    for number in range(5_000):
        known.ended(receipt(backend=f"pod-{number}"))
        known.of(PLAN, one, Prompt(), None, None)

    assert len(known._latencies) <= 4_096


def test_failed_calls_teach_nothing_of_time_or_length() -> None:
    known, one = Expectations(), model()
    before = known.of(PLAN, one, Prompt(tokens=1_000), None, None)
    failed = receipt(seconds=300.0, tokens=9_000)
    failed.outcome = failed.calls[0].outcome = "backend_error"
    known.ended(failed)

    assert known.of(PLAN, one, Prompt(tokens=1_000), None, None) == before


def test_the_slowest_twentieth_is_known_once_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Expectations()
    assert known.p95(PLAN) is None
    for count in range(400):
        took = 10.0 if count % 10 == 0 else 1.0
        monkeypatch.setattr("gateway.serving.expected.perf_counter", lambda took=took: took)
        known.ended(receipt())

    tail = known.p95(PLAN)
    assert tail is not None
    assert 5 < tail < 15


def test_a_second_is_dearer_when_others_wait_for_it() -> None:
    known = Expectations()
    one = model(queue={"slots": 4, "room": 10})
    assert one.admission is not None

    assert known.second(0.1, [one]) == 0.1
    for taken in range(4):
        one.admission._take()
        assert known.second(0.1, [one]) == pytest.approx(0.1 if taken < 2 else 0.1 * (1 + 4 * ((taken + 1) / 4 - 0.7)))


def test_the_answers_of_who_stood_in_tell_nothing_of_the_plans() -> None:
    known, one = Expectations(), model()
    before = known.of(PLAN, one, Prompt(tokens=1_000), None, None)[0]
    foreign = receipt(tokens=9_000)
    foreign.calls = []
    assert foreign.choice is not None
    foreign.choice = msgspec.structs.replace(foreign.choice, model="m")
    foreign.served_model = "other"
    known.ended(foreign)

    assert known.of(PLAN, one, Prompt(tokens=1_000), None, None)[0] == before
    foreign.served_model = "m"
    known.ended(foreign)
    assert known.of(PLAN, one, Prompt(tokens=1_000), None, None)[0] > before


RATES = Rates(1.0, 0.1, 2.0)
FOUR, EIGHT, ELSEWHERE = (
    Plan(f"{model}-{n}", model, f"judged-{n}", response=Response("best_of_n/judge", n)) for model, n in (("m", 4), ("m", 8), ("other", 8))
)


def judged(monkeypatch: pytest.MonkeyPatch, *, answers: int = 4) -> Receipt:
    """A request of FOUR: so many answers of 100 tokens in 2 s each, two at a time, and a judge who reads them for 0.002 USD in one more."""
    read = [Usage(1_000, 0, 100), *[Usage(1_000, 1_000, 100)] * (answers - 1)]
    calls = [
        UpstreamCall("a", "m", 2.0 * (at // 2), "candidate", None, 2.0 * (at // 2) + 2.0, 200, "ok", usage=usage, rates=RATES)
        for at, usage in enumerate(read)
    ]
    calls.append(UpstreamCall("j", "judge", answers, "judge", None, answers + 1.0, 200, "ok", usage=Usage(200, 0, 0), rates=Rates(10.0)))
    choice = Choice(Decided((), Prices()), FOUR)
    monkeypatch.setattr("gateway.serving.expected.perf_counter", lambda: answers + 1.0)
    tried = [Tried(at) for at in range(answers)]
    return Receipt("r", "d", 0.0, usage=Usage(1_000, 0, 100 * answers), outcome="ok", calls=calls, choice=choice, tried=tried)


def test_a_strategy_that_is_new_is_taken_to_answer_as_its_model_does_as_often_as_it_may() -> None:
    """Others write 1,000 tokens, this model 100: eight answers are 800, and seven of them have the prompt cached."""
    known, one = Expectations(), model()
    for _ in range(100):
        known.ended(receipt(Plan("p", "m")))
        known.ended(receipt(Plan("q", "other"), tokens=1_000))

    cost, latency = known.of(EIGHT, one, Prompt(tokens=1_000), None, None, 8)
    assert cost == pytest.approx((1_000 + 7 * 1_000 * 0.1 + 800 * 2) / 1e6, rel=0.03)
    assert latency == pytest.approx(known.of(PLAN, one, Prompt(tokens=1_000), None, None)[1])


def test_what_one_number_of_answers_took_is_expected_of_others_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three of four answers were asked for. By themselves they cost 1,000 + 2 x 100 for reading and 600 for writing, in millionths; the
    judge as much again and 200 more. It took twice as long as one answer."""
    known, one = Expectations(), model()
    for _ in range(200):
        known.ended(receipt())
        known.ended(judged(monkeypatch, answers=3))

    alone = known.of(PLAN, one, Prompt(tokens=1_000), None, None)[1]
    cost, latency = known.of(FOUR, one, Prompt(tokens=1_000), None, None, 4)
    assert cost == pytest.approx(0.0018 + 0.002, rel=0.02)
    assert latency == pytest.approx(2.0 * alone)
    for untried in (EIGHT, ELSEWHERE):
        cost, latency = known.of(untried, one, Prompt(tokens=1_000), None, None, 8)
        assert cost == pytest.approx((0.0018 + 0.002) / 0.0018 * (1_000 + 5 * 100 + 600 * 2) / 1e6, rel=0.03)
        assert latency == pytest.approx(2.0 * alone)
    other = Plan("v", "m", "vote", response=Response("self_consistency/majority", 7))
    assert known.of(other, one, Prompt(tokens=1_000), None, None, 8)[0] == pytest.approx(0.0033, rel=0.03)
