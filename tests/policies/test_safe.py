from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
import pytest

from policies.offpolicy.sequences import radius
from policies.policy import Policy, decide
from policies.routing.weighted import Weighted
from policies.states import arrays, restored
from policies.values.outcome import Observation
from policies.values.situation import Situation, Standing
from policies.wrappers.canary import Canary
from policies.wrappers.canary import Params as CanaryParams
from policies.wrappers.safe import Params, Safe, State, build, problems
from policies.wrappers.sticky import Params as StickyParams
from policies.wrappers.sticky import Sticky
from tests.support.given import Given, Seen, candidates, kit, surprise

PLANS = candidates("ab")
ASKED = Situation(PLANS)
WANTS_B = Given({"b": 1.0})


def observed(plan: str, quality: float | None, baseline: float, before: float | None = None) -> Observation:
    return Observation("d", plan, {}, quality, 0.0, before=before, baseline=baseline)


class Run(NamedTuple):
    """modes: after each batch. deviated: requests that left the baseline. lost: quality, in expectation."""

    modes: list[str]
    deviated: int
    lost: float


def served(params: Params, seed: int, requests: int, baseline: float, policy: Callable[[int], float], batch: int = 50) -> Run:
    """Requests over baseline `a` and `b`, which the policy always wants; qualities are coins with these probabilities."""
    safe, rng = Safe(WANTS_B, "a", params), np.random.default_rng(seed)
    state: State = safe.empty()
    modes, deviated, lost = [], 0, 0.0
    scores = safe.estimate(state, ASKED)
    for start in range(0, requests, batch):
        p = safe.propensities(state, ASKED, scores).drawn
        b = policy(start)
        left = rng.random(batch) < p[1]
        good = rng.random(batch) < np.where(left, b, baseline)
        state = safe.fold(state, [observed("b" if z else "a", float(q), p[0]) for z, q in zip(left, good, strict=True)])
        modes.append(safe.gain(state).mode)
        deviated += int(left.sum())
        lost += p[1] * batch * (baseline - b)
    return Run(modes, deviated, lost)


def known(params: Params, n: int, gain: float) -> State:
    """A state after n requests half of which left the baseline, whose quality is 1/2, and gained this much by that."""
    return State(Seen(), n, total=0.25 * n * gain, squares=n / 16, overlap=0.25 * n, served=float(n), value=n / 2)


def test_the_policy_gets_the_share_that_may_be_lost_while_nothing_is_known() -> None:
    safe = build(Params(max_loss=0.02), WANTS_B, (), kit(baseline="a"))

    decision = decide(Policy("p", safe, 0.3, 1), safe.empty(), ASKED, "d")

    assert decision.probabilities == pytest.approx((0.98, 0.02))  # no floor
    gain = safe.gain(safe.empty())
    assert (gain.mode, gain.low, gain.high, gain.baseline) == ("cautious", -1.0, 1.0, 0.5)


def test_the_meter_by_hand() -> None:
    safe = Safe(WANTS_B, "a", Params(max_loss=0.1, alpha=0.1))
    drawn = [observed("a", 1.0, 0.8), observed("b", 0.5, 0.8), observed("b", 1.0, 0.6), observed("a", 0.0, 0.5)]
    state = safe.fold(safe.empty(), drawn)

    # (z - e)(q - 1/2): -0.2 * 0.5, 0.8 * 0, 0.6 * 0.5, -0.5 * -0.5
    total, squares, overlap = -0.1 + 0.3 + 0.25, 0.01 + 0.09 + 0.0625, 0.16 + 0.16 + 0.24 + 0.25
    assert (state.n, state.total, state.squares, state.overlap) == pytest.approx((4, total, squares, overlap))
    assert (state.served, state.value) == pytest.approx((1 / 0.8 + 2, 1 / 0.8))
    gain = safe.gain(state)
    assert gain.mean == pytest.approx(total / overlap)
    assert gain.baseline == pytest.approx((1.25 + 5) / (3.25 + 10))
    assert (gain.low, gain.high) == (-1.0, 1.0)
    statistics = safe.statistics(state)
    assert statistics["gain"]["observations"] == 4
    assert statistics["gain"]["mode"] == "cautious"
    assert statistics["inner"] == {"count": 4}


def test_the_share_follows_from_the_bounds() -> None:
    params = Params(max_loss=0.1, alpha=0.05, control=0.1, probe=0.01)
    safe = Safe(WANTS_B, "a", params)

    shares = []
    for n, gain in [(1_000, 0.0), (4_000, 0.0), (40_000, 0.0), (10_000, -0.2)]:
        state = known(params, n, gain)
        reach = radius(n / 16, 0.05, 0.5) / (0.25 * n)
        meter = safe.gain(state)
        assert (meter.low, meter.high) == pytest.approx((gain - reach, gain + reach))
        assert meter.baseline == 0.5
        shares.append((meter.mode, meter.share))
        if meter.mode == "cautious":
            assert meter.share * -meter.low == pytest.approx(0.1 * 0.5)  # the largest loss that is not excluded is the one that is allowed

    assert [mode for mode, _ in shares] == ["cautious", "cautious", "open", "aside"]
    assert shares[0][1] < shares[1][1] < 0.9
    assert [share for _, share in shares[2:]] == [0.9, 0.01]


@pytest.mark.parametrize("worse", [0.3, 0.5])
def test_a_worse_policy_is_stopped_and_never_costs_more_than_is_allowed(worse: float) -> None:
    params = Params(max_loss=0.1, alpha=0.05, probe=0.01)
    runs = [served(params, seed, 5_000, 0.7, lambda _: worse) for seed in range(40)]

    for run in runs:
        assert run.modes[-1] == "aside"
        assert "open" not in run.modes
        assert run.lost <= 0.1 * 0.7 * 5_000
    # It costs much less than the 10 %, for it is stopped: 0.01 of the requests thereafter
    assert np.mean([run.lost for run in runs]) < 0.025 * 0.7 * 5_000


def test_a_policy_that_gets_worse_while_it_learns_is_held_too() -> None:
    params = Params(max_loss=0.1, alpha=0.05, probe=0.01)

    for seed in range(10):
        run = served(params, seed, 20_000, 0.6, lambda at: 0.7 if at < 3_000 else 0.3)
        assert "open" in run.modes[: 3_000 // 50]
        assert "open" not in run.modes[-100:]
        assert run.lost <= 0.1 * 0.6 * 20_000


def test_a_better_policy_is_let_go_and_not_stopped() -> None:
    runs = [served(Params(max_loss=0.1, alpha=0.05), seed, 2_000, 0.6, lambda _: 0.7) for seed in range(200)]

    assert sum("aside" in run.modes for run in runs) <= 10  # alpha of 200; the bounds are wider than they must be, so it is about 0
    assert sum(run.modes[-1] == "open" for run in runs) >= 190


def test_a_policy_that_loses_just_what_it_may_is_rarely_stopped_and_rarely_let_go() -> None:
    runs = [served(Params(max_loss=0.1, alpha=0.2), seed, 2_000, 0.7, lambda _: 0.63) for seed in range(200)]

    assert sum("aside" in run.modes for run in runs) <= 20  # 10 % of them on either side
    assert sum("open" in run.modes for run in runs) <= 20


@pytest.mark.parametrize(
    ("state", "floor", "expected"),
    [
        (None, 0.2, {"a": 0.9 + 0.1 / 4, "b": 0.1 * 3 / 4}),
        ((10_000, -0.3), 0.2, {"a": 0.99 + 0.01 / 4, "b": 0.01 * 3 / 4}),
        ((40_000, 0.1), 0.2, {"a": 0.8 * (0.1 + 0.9 / 4) + 0.1, "b": 0.8 * 0.9 * 3 / 4 + 0.1}),
    ],
    ids=["cautious", "probing", "open"],
)
def test_draws_follow_the_logged_probabilities(state: tuple[int, float] | None, floor: float, expected: dict[str, float]) -> None:
    params = Params(max_loss=0.1, probe=0.01)
    safe = Safe(Weighted({"a": 1, "b": 3}), "a", params)
    known_state = safe.empty() if state is None else known(params, *state)

    # 1 degree of freedom: 10.8 is passed once in 1,000 seeds
    assert surprise(Policy("p", safe, floor, 5), known_state, lambda _: ASKED, expected) < 10.8


def test_marginal_probabilities_are_exact_through_an_experiment_outside_and_inside() -> None:
    params, split = Params(max_loss=0.1), CanaryParams(policy="new", share=0.4)
    outside = Canary(Safe(WANTS_B, "a", params), Weighted({"c": 1}), split)
    inside = Safe(Canary(WANTS_B, Weighted({"c": 1}), split), "a", params)
    plans = candidates("abc")

    for built, expected in ((outside, {"a": 0.6 * 0.9, "b": 0.6 * 0.1, "c": 0.4}), (inside, {"a": 0.9, "b": 0.06, "c": 0.04})):
        chi2 = surprise(Policy("p", built, 0.0, 5), built.empty(), lambda i: Situation(plans, unit=f"u{i}"), expected)
        assert chi2 < 13.8


def test_what_may_not_be_explored_on_is_the_baselines_until_the_policy_is_trusted() -> None:
    params = Params(max_loss=0.1)
    safe = Safe(WANTS_B, "a", params)
    calm = msgspec.structs.replace(ASKED, explore=False)

    for state, chosen in [(safe.empty(), 0), (known(params, 10_000, -0.3), 0), (known(params, 40_000, 0.1), 1)]:
        decision = decide(Policy("p", safe, 0.2, 1), state, calm, "d")
        assert (decision.chosen, decision.propensity) == (chosen, 1.0)


def test_without_the_baseline_the_policy_decides_alone() -> None:
    safe = Safe(Given({"b": 0.2, "c": 0.7}), "a", Params())

    assert decide(Policy("p", safe, 0.2, 1), safe.empty(), Situation(candidates("bc")), "d").probabilities == pytest.approx((0.1, 0.9))


def test_a_session_stays_where_it_is_unless_the_policy_steps_aside() -> None:
    params = Params(max_loss=0.1, probe=0.01)
    safe = Safe(Sticky(WANTS_B, StickyParams()), "a", params)
    later = msgspec.structs.replace(ASKED, standing=Standing("b", 1.0))
    loop = msgspec.structs.replace(later, tool_loop=True)

    def probabilities(state: State, situation: Situation) -> tuple[float, ...]:
        return decide(Policy("p", safe, 0.0, 1), state, situation, "d").probabilities

    empty = safe.empty()
    assert probabilities(empty, later) == probabilities(empty, loop) == (0.0, 1.0)
    stopped = State(empty.inner, 10_000, -750.0, 625.0, 2_500.0, 10_000.0, 5_000.0)
    assert safe.gain(stopped).mode == "aside"
    assert probabilities(stopped, later) == pytest.approx((0.99, 0.01))
    assert probabilities(stopped, loop) == (0.0, 1.0)
    assert probabilities(empty, msgspec.structs.replace(ASKED, standing=Standing("a", 1.0))) == pytest.approx(
        (0.9, 0.1)
    )  # it wants to leave


def test_only_what_was_drawn_counts() -> None:
    safe = Safe(Given(), "a", Params())

    state = safe.fold(safe.empty(), [observed("a", 1.0, 1.0), observed("b", 1.0, 0.0), observed("b", 1.0, math.nextafter(1.0, 0.0))])

    assert state.n == 1
    assert state.inner == Seen(3, 3.0)


def test_order_does_not_matter_corrections_correct_and_retractions_take_back() -> None:
    safe = Safe(Given(), "a", Params())
    rng = np.random.default_rng(0)
    some = [observed("ab"[int(rng.random() < 0.4)], float(rng.random()), float(rng.uniform(0.2, 0.9))) for _ in range(60)]
    whole = arrays(safe.fold(safe.empty(), some))

    backwards = arrays(safe.fold(safe.fold(safe.empty(), some[:10:-1]), some[10::-1]))
    corrected = safe.fold(safe.empty(), [msgspec.structs.replace(some[0], quality=0.123), *some[1:]])
    corrected = safe.fold(corrected, [msgspec.structs.replace(some[0], before=0.123)])
    taken = safe.fold(safe.fold(safe.empty(), some), [msgspec.structs.replace(each, quality=None, before=each.quality) for each in some])

    for name, value in whole.items():
        assert backwards[name] == pytest.approx(value)
        assert arrays(corrected)[name] == pytest.approx(value)
        assert arrays(taken)[name] == pytest.approx(0.0, abs=1e-9)
    assert safe.gain(taken).share == pytest.approx(0.02)
    assert restored(safe.empty(), whole) == safe.fold(safe.empty(), some)


def test_shadows_watch_through_it() -> None:
    safe = Safe(Given({"b": 1.0}, shadow={"s": "b"}), "a", Params())

    for situation in (ASKED, msgspec.structs.replace(ASKED, explore=False)):
        assert decide(Policy("p", safe, 0.0, 1), safe.empty(), situation, "d").shadow == {"s": "b"}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (Params(max_loss=0.0), ["`max_loss`"]),
        (Params(alpha=1.0, control=-0.5), ["`alpha`", "`control`"]),
        (Params(probe=0.05), ["`probe`"]),
        (Params(), []),
    ],
)
def test_parameters_that_cannot_work_are_problems(params: Params, words: list[str]) -> None:
    found = problems(params, ["a", "b"])

    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))
