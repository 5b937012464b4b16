from __future__ import annotations

import hashlib
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from policies.draw import draw, mix, uniform
from policies.policy import Policy, decide
from policies.values.situation import Situation
from tests.support.given import Given, candidates

FUZZ = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
weights = st.lists(st.one_of(st.just(0.0), st.floats(0, 1), st.floats(0, 1e300), st.just(5e-324)), min_size=1, max_size=6)
floors = st.one_of(st.just(0.0), st.floats(0, 0.999))
ids = st.uuids().map(str)


def test_the_uniform_is_the_keyed_hash_of_the_id() -> None:
    digest = hashlib.blake2b(b"decision-1", digest_size=8, key=(7).to_bytes(8, "big")).digest()

    assert uniform("decision-1", 7) == int.from_bytes(digest, "big") // 2**11 / 2**53
    assert uniform("decision-1", 7) != uniform("decision-1", 8)
    assert uniform("decision-1", 7) != uniform("decision-2", 7)


@FUZZ
@given(decision_id=st.text(max_size=40), seed=st.integers(0, 2**63 - 1))
def test_the_uniform_lies_in_the_unit_interval(decision_id: str, seed: int) -> None:
    assert 0.0 <= uniform(decision_id, seed) < 1.0


def test_uniforms_are_uniform() -> None:
    cells = Counter(int(uniform(f"id-{i}", 3) * 10) for i in range(20_000))

    # chi-square, 9 degrees of freedom: 27.9 is passed once in 1,000 seeds
    assert sum((cells[cell] - 2_000) ** 2 / 2_000 for cell in range(10)) < 27.9


@pytest.mark.parametrize(
    ("propensities", "floor", "mixed"),
    [
        ((1.0, 0.0), 0.0, (1.0, 0.0)),
        ((1.0, 0.0), 0.1, (0.95, 0.05)),
        ((0.25, 0.75), 0.2, (0.3, 0.7)),
        ((1.0, 3.0), 0.0, (0.25, 0.75)),  # normalised
        ((0.0, 0.0, 5.0, 0.0), 0.4, (0.1, 0.1, 0.7, 0.1)),
        ((0.3,), 0.5, (1.0,)),
    ],
)
def test_the_floor_is_a_total_share_split_over_all_plans(propensities: tuple[float, ...], floor: float, mixed: tuple[float, ...]) -> None:
    assert mix(propensities, floor) == pytest.approx(mixed, abs=1e-15)


@FUZZ
@given(propensities=weights, floor=floors)
def test_mixed_probabilities_are_exact(propensities: list[float], floor: float) -> None:
    assume(sum(propensities) > 0)

    mixed = mix(propensities, floor)

    total = sum(map(Fraction, propensities))
    for p, got in zip(propensities, mixed, strict=True):
        exact = (1 - Fraction(floor)) * Fraction(p) / total + Fraction(floor) / len(propensities)
        assert math.isclose(got, float(exact), rel_tol=1e-14, abs_tol=1e-300)
        assert got >= floor / len(propensities)
    assert math.isclose(sum(mixed), 1.0, rel_tol=1e-14)


@pytest.mark.parametrize("propensities", [[], [0.0], [0.0, 0.0], [math.nan]])
def test_there_must_be_something_to_draw(propensities: list[float]) -> None:
    with pytest.raises(ValueError, match="no plan"):
        draw(propensities, 0.1, "id", 0)


@FUZZ
@given(propensities=weights, floor=floors, decision_id=ids, seed=st.integers(0, 2**63 - 1))
@example(propensities=[1.0, 0.0, 0.0], floor=0.0, decision_id="a", seed=0)
@example(propensities=[0.0, 0.0, 1.0], floor=0.0, decision_id="a", seed=0)
@example(propensities=[5e-324, 1e300, 0.0], floor=0.0, decision_id="a", seed=0)
def test_a_draw_tells_the_truth_about_itself(propensities: list[float], floor: float, decision_id: str, seed: int) -> None:
    assume(sum(propensities) > 0)

    decision = draw(propensities, floor, decision_id, seed)

    assert decision == draw(propensities, floor, decision_id, seed)
    assert decision.probabilities == mix(propensities, floor)
    assert decision.propensity == decision.probabilities[decision.chosen] > 0
    assert decision.explored == (propensities[decision.chosen] < max(propensities))


@FUZZ
@given(propensities=weights, floor=floors, decision_id=ids)
def test_the_plan_is_where_the_uniform_falls(propensities: list[float], floor: float, decision_id: str) -> None:
    assume(sum(propensities) > 0)
    u = Fraction(uniform(decision_id, 5))
    edges = [Fraction(0)]
    for p in mix(propensities, floor):
        edges.append(edges[-1] + Fraction(p))
    u *= edges[-1]
    assume(all(abs(u - edge) > Fraction(1, 10**12) for edge in edges))

    chosen = draw(propensities, floor, decision_id, 5).chosen

    assert edges[chosen] < u < edges[chosen + 1]


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
@pytest.mark.parametrize("propensities", [(0.0, 1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.1,) * 10 + (0.0,), (0.0, 1e-17, 1.0, 0.0)])
def test_at_the_ends_of_the_interval_no_plan_of_probability_zero_is_drawn(
    propensities: tuple[float, ...], u: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policies.draw.uniform", lambda *_: u)

    chosen = draw(propensities, 0.0, "id", 0).chosen

    positive = [plan for plan, p in enumerate(propensities) if p > 0]
    assert chosen == positive[0 if u == 0.0 else -1]


@pytest.mark.parametrize("floor", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("propensities", [(1.0,), (0.0, 1.0, 0.0), (0.5, 0.3, 0.2), (0.7, 0.0, 0.2, 0.1), (0.9, 0.05, 0.05)])
def test_twenty_thousand_draws_follow_the_logged_probabilities(propensities: tuple[float, ...], floor: float) -> None:
    drawn = Counter(draw(propensities, floor, f"decision-{i}", 11).chosen for i in range(20_000))

    probabilities = mix(propensities, floor)
    expected = {plan: 20_000 * p for plan, p in enumerate(probabilities) if p > 0}
    assert drawn.keys() <= expected.keys()
    # chi-square, at most 3 degrees of freedom: 16.3 is passed once in 1,000 seeds
    assert sum((drawn[plan] - count) ** 2 / count for plan, count in expected.items()) < 16.3


def test_the_marginal_is_logged_and_the_other_is_drawn_from() -> None:
    drawn = Counter(draw((0.2, 0.8), 0.1, f"d{i}", 3, (0.5, 0.5)).chosen for i in range(20_000))
    decision = draw((0.0, 1.0), 0.1, "d1", 3, (0.75, 0.25))

    # 0.23 and 0.77; chi-square, 1 degree of freedom: 10.8 is passed once in 1,000 seeds
    assert sum((drawn[plan] - count) ** 2 / count for plan, count in ((0, 4_600), (1, 15_400))) < 10.8
    assert decision.probabilities == pytest.approx((0.725, 0.275))
    assert decision.propensity == decision.probabilities[decision.chosen]


@pytest.mark.parametrize(
    ("explore", "explores", "expected"),
    [(True, True, (0.1, 0.9)), (False, True, (0.0, 1.0)), (True, False, (0.0, 1.0))],
)
def test_a_decision_has_the_floor_in_it_where_request_and_policy_may_explore(
    explore: bool, explores: bool, expected: tuple[float, ...]
) -> None:
    algorithm = Given({"a": 0.1, "b": 0.4}, explores=explores, shadow={"other": "a"})

    decision = decide(Policy("p", algorithm, 0.2, 7), algorithm.empty(), Situation(candidates("ab"), explore=explore), "d1")

    assert decision.probabilities == pytest.approx(expected)
    assert decision.shadow == {"other": "a"}
    assert decision.scores is not None
    assert decision.scores.quality == (0.1, 0.4)
    assert decision.chosen == draw((0.0, 1.0), 0.2 if expected[0] else 0.0, "d1", 7).chosen


@pytest.mark.parametrize("odds", [(-0.5, 1.5), (float("nan"), 1.0), (float("inf"), 1.0), (0.0, 0.0)])
def test_what_is_no_probability_is_not_drawn_from(odds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="probability"):
        draw(odds, 0.1, "d1", 3)
    with pytest.raises(ValueError, match="probability"):
        draw((0.5, 0.5), 0.1, "d1", 3, odds)
