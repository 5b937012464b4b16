from __future__ import annotations

from typing import Any

import msgspec
import pytest

from policies.registry import ALGORITHMS, policy, problems
from policies.values.plan import Plan

PLANS = (Plan("a", "m"), Plan("b", "m"))


def test_a_policy_is_built_from_its_configuration() -> None:
    built = policy("split", "weighted", {"weights": {"a": 1, "b": 3}}, 0.1, 7)

    assert (built.name, built.floor, built.seed) == ("split", 0.1, 7)
    assert built.propensities(PLANS) == (0.25, 0.75)


def test_every_algorithm_works_with_its_defaults() -> None:
    for kind in ALGORITHMS:
        assert problems(kind, {}, ["a", "b"]) == []
        shares = policy("p", kind, {}, 0.0, 0).propensities(PLANS)
        assert sum(shares) == pytest.approx(1.0)
        assert all(share >= 0 for share in shares)


@pytest.mark.parametrize(
    ("kind", "params", "words"),
    [
        ("linear", {}, ["`linear`", "fixed", "weighted"]),
        ("fixed", {"plan": 5}, ["str", "plan"]),
        ("fixed", {"plans": "a"}, ["plans"]),
        ("weighted", {"weights": {"a": "1"}}, ["float"]),
        ("weighted", {"weights": {"a": True}}, ["float"]),
        ("weighted", {"weights": ["a"]}, ["weights"]),
        ("weighted", {"seed": 1}, ["seed"]),
    ],
)
def test_parameters_that_do_not_fit_are_refused_in_words(kind: str, params: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\S") as caught:
        policy("p", kind, params, 0.0, 0)

    assert all(word in str(caught.value) for word in words)
    assert problems(kind, params, ["a"]) == [str(caught.value)]


def test_problems_with_the_plans_are_found_before_anything_runs() -> None:
    assert len(problems("fixed", {"plan": "c"}, ["a", "b"])) == 1
    assert len(problems("weighted", {"weights": {"c": 1, "d": -1}}, ["a", "b"])) == 3


def test_parameters_are_strict_frozen_values() -> None:
    for algorithm in ALGORITHMS.values():
        assert issubclass(algorithm.params, msgspec.Struct)
        assert algorithm.params.__struct_config__.frozen
        assert algorithm.params.__struct_config__.forbid_unknown_fields


def test_nothing_can_be_registered_from_outside() -> None:
    with pytest.raises(TypeError):
        ALGORITHMS["mine"] = ALGORITHMS["fixed"]  # type: ignore[index]
