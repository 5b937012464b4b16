"""When wrappers come or go, what a policy knows stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies import registry
from policies.policy import RoutingPolicy
from policies.registry import Spec
from policies.rewrapping import innermost, rewrapped
from policies.states import arrays
from policies.values.outcome import Observation
from policies.values.plan import Plan
from tests.support.encoders import Letters

PLANS = (Plan("small", "s"), Plan("large", "l"))


def built(*wrappers: dict[str, Any], kind: str = "best_single") -> RoutingPolicy[Any]:
    specs = {"it": Spec(kind, {}, 0.1, 0, wrappers), "other": Spec("best_single")}
    return registry.policy("it", specs, PLANS, "small", lambda _: Letters()).algorithm


def taught(policy: RoutingPolicy[Any]) -> Any:
    seen = [Observation(f"d{i}", "large" if i % 3 else "small", {}, i % 4 / 4, 1.8e9 + i, propensity=0.5, baseline=0.5) for i in range(40)]
    return policy.fold(policy.empty(), seen)


def same(one: Any, other: Any) -> bool:
    first, second = arrays(one), arrays(other)
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


STICKY, FROZEN, SAFE, SHADOW = {"type": "sticky"}, {"type": "frozen"}, {"type": "safe"}, {"type": "shadow", "policy": "other"}


@pytest.mark.parametrize("before", [(), (STICKY,), (SAFE,), (STICKY, SAFE), (SHADOW, SAFE)])
@pytest.mark.parametrize("after", [(), (FROZEN,), (SAFE, FROZEN), (SHADOW,), (STICKY, SHADOW, SAFE)])
def test_the_algorithm_keeps_what_it_knows(before: tuple[dict[str, Any], ...], after: tuple[dict[str, Any], ...]) -> None:
    old, new = built(*before), built(*after)
    state = taught(old)
    found = rewrapped(new.empty(), arrays(state))
    core = found
    for _ in after:
        core = core.inner
    known = state
    for _ in before:
        known = known.inner
    assert same(core, known) and same(core, taught(built()))
    assert new.statistics(found)


def test_a_wrapper_that_stays_keeps_its_own() -> None:
    state = taught(built(SAFE))
    found = rewrapped(built(STICKY, SAFE, FROZEN).empty(), arrays(state))
    assert found.inner.n == state.n > 0 and found.inner.total == state.total
    assert same(found.inner.inner.inner, state.inner)
    fresh = rewrapped(built(SHADOW).empty(), arrays(state))
    assert same(fresh.other, built().empty()) and fresh.failures == 0


def test_a_watching_policy_goes_alone() -> None:
    state = taught(built(SHADOW, SAFE))
    found = rewrapped(built(SHADOW).empty(), arrays(state))
    assert same(found, state.inner)


def test_what_is_of_another_algorithm_is_refused() -> None:
    state = taught(built(FROZEN))
    for kind in ("thompson", "neighbors"):
        with pytest.raises(ValueError):
            rewrapped(built(STICKY, kind=kind).empty(), arrays(state))


def test_the_innermost_is_the_algorithm() -> None:
    assert type(innermost(built(STICKY, SAFE))) is type(built())
