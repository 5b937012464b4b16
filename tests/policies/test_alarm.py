from __future__ import annotations

import numpy as np
import pytest

from policies.offpolicy.alarm import BETS, Alarm, State
from policies.states import arrays, restored
from policies.values.outcome import Observation


def labels(plan: str, values: np.ndarray) -> list[Observation]:
    return [Observation(f"{plan}{i}", plan, {}, float(q), 0.0) for i, q in enumerate(values)]


def coins(rng: np.random.Generator, p: float, n: int) -> np.ndarray:
    return (rng.random(n) < p).astype(float)


def test_two_failures_by_hand() -> None:
    alarm = Alarm({"a": 0.7}, margin=0.2)
    state = alarm.fold(alarm.empty(), labels("a", np.array([0.0, 0.0])))

    # m = 1/2, so a failure is worth 1 + b; 1/2 is staked first, then 1/6, and 1/3 is left
    by_hand = [(0.5 * (1 + b) + 1 / 6) * (1 + b) for b in BETS]
    assert state.capital[0] == pytest.approx(by_hand)
    assert alarm.statistics(state)["a"]["evidence"] == pytest.approx(sum(by_hand) / len(BETS) + 1 / 3)
    assert alarm.statistics(state)["a"]["observations"] == 2


def test_plans_that_are_as_good_as_they_must_be_rarely_raise_it() -> None:
    alarm = Alarm({"a": 0.75, "b": 0.35}, margin=0.05, alpha=0.1)
    rng = np.random.default_rng(0)

    false = 0
    for _ in range(200):
        # exactly at the edge, where a false alarm is likeliest
        state = alarm.fold(alarm.empty(), labels("a", coins(rng, 0.7, 600)) + labels("b", coins(rng, 0.3, 600)))
        false += alarm.fired(state) != ()

    assert false <= 33  # 20 on average at most; 34 or more have probability 0.2 %


@pytest.mark.parametrize(("before", "within"), [(0, 300), (10_000, 700)])
def test_a_regression_is_found_whenever_it_comes(before: int, within: int) -> None:
    alarm = Alarm({"a": 0.8, "b": 0.8}, margin=0.05, alpha=0.01)
    rng = np.random.default_rng(1)

    for _ in range(5):
        state = alarm.fold(alarm.empty(), labels("a", coins(rng, 0.8, before)) + labels("b", coins(rng, 0.8, 500)))
        assert alarm.fired(state) == ()
        state = alarm.fold(state, labels("a", coins(rng, 0.55, within)))
        assert alarm.fired(state) == ("a",)


def test_what_has_fired_has_fired() -> None:
    alarm = Alarm({"a": 0.8})
    state = alarm.fold(alarm.empty(), labels("a", np.zeros(5_000)))
    assert np.isfinite(state.capital).all()

    state = alarm.fold(state, labels("a", np.ones(5_000)))

    assert alarm.fired(state) == ("a",)
    assert alarm.fired(alarm.empty()) == ()


def test_only_first_labels_of_watched_plans_count() -> None:
    alarm = Alarm({"a": 0.8})
    others = [
        Observation("d", "other", {}, 0.0, 0.0),
        Observation("d", "a", {}, 0.0, 0.0, before=1.0),
        Observation("d", "a", {}, None, 0.0, before=1.0),
    ]

    state = alarm.fold(alarm.empty(), others)

    assert arrays(state).keys() == {"capital", "seen", "peak"}
    assert state.seen[0] == 0
    assert state.peak[0] == 1.0


def test_batches_do_not_matter_and_it_can_be_kept() -> None:
    alarm = Alarm({"a": 0.8, "b": 0.8})
    observations = labels("a", coins(np.random.default_rng(2), 0.6, 100))
    whole = alarm.fold(alarm.empty(), observations)

    parts = alarm.fold(alarm.fold(alarm.empty(), observations[:30]), observations[30:])
    again: State = restored(alarm.empty(), arrays(parts))

    assert (again.capital == whole.capital).all()
    assert alarm.statistics(again) == alarm.statistics(whole)


@pytest.mark.parametrize(("references", "margin", "alpha"), [({"a": 0.05}, 0.05, 0.01), ({"a": 1.2}, 0.05, 0.01), ({"a": 0.5}, 0.05, 0.0)])
def test_what_could_never_go_off_is_refused(references: dict[str, float], margin: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        Alarm(references, margin, alpha)
