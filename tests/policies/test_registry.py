from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from policies import registry
from policies.policy import Encoder, Policy, decide
from policies.registry import ALGORITHMS, WRAPPERS, Spec, policy, problems
from policies.routing.base import Stateless
from policies.values.plan import Plan
from policies.values.prompt import Prompt, Turn
from policies.values.situation import Situation
from tests.support.encoders import Letters
from tests.support.given import candidates, surprise

PLANS = (Plan("a", "m"), Plan("b", "m"))

# Parameters of every policy that learns nothing, and what it draws of a, b and c before the floor.
STATELESS: dict[str, tuple[dict[str, Any], dict[str, float]]] = {
    "fixed": ({"plan": "b"}, {"a": 0.0, "b": 1.0, "c": 0.0}),
    "random": ({}, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
    "weighted": ({"weights": {"a": 3, "c": 1}}, {"a": 0.75, "b": 0.0, "c": 0.25}),
    "rules": ({"rules": [{"weights": {"a": 1, "b": 4}}]}, {"a": 0.2, "b": 0.8, "c": 0.0}),
}


class Wide(Letters):
    """As many numbers as any policy reads."""

    @property
    def dim(self) -> int:
        return 28


def encoder(name: str) -> Encoder:
    return Wide("abcdefghijklmnopqrstuvwxyz?!", f"{name}-1")


def built(name: str, **specs: Spec) -> Policy:
    return policy(name, specs, PLANS, "a", encoder)


def found(name: str, **specs: Spec) -> list[str]:
    return problems(name, specs, PLANS, "a", encoder)


def test_a_policy_is_built_from_its_configuration() -> None:
    made = built("split", split=Spec("weighted", {"weights": {"a": 1, "b": 3}}, 0.1, 7))

    assert (made.name, made.floor, made.seed) == ("split", 0.1, 7)
    assert decide(made, None, Situation(candidates("ab")), "d").probabilities == pytest.approx((0.9 / 4 + 0.05, 0.9 * 3 / 4 + 0.05))


def test_a_type_goes_by_its_own_name_where_nothing_is_configured() -> None:
    made = built("fixed")

    assert (made.name, made.floor) == ("fixed", 0.0)
    assert decide(made, None, Situation(candidates("ab")), "d").probabilities == (1.0, 0.0)
    assert found("fixed") == []


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_every_algorithm_works_with_its_defaults(kind: str) -> None:
    assert found(kind) == []
    made = built(kind)
    state = made.algorithm.empty()
    blocks = {each.name: each.encode(Prompt((Turn("user", "hello"),))) for each in made.algorithm.encoders}

    assert type(made.start) is type(state)
    for names in ("ab", "a"):
        decision = decide(made, state, Situation(candidates(names), blocks, now=1.7e9), "d")
        assert sum(decision.probabilities) == pytest.approx(1.0)
        assert all(share >= 0 for share in decision.probabilities)
        assert decision.scores is not None
        assert all(len(each) == len(names) for each in (decision.scores.quality, decision.scores.low, decision.scores.high))
    assert isinstance(made.algorithm.statistics(made.algorithm.fold(state, [])), dict)


@pytest.mark.parametrize("path", [*ALGORITHMS.values(), *WRAPPERS.values()])
def test_every_module_has_its_parts_and_strict_frozen_parameters(path: str) -> None:
    module = importlib.import_module(path)

    assert callable(module.problems)
    assert callable(module.build)
    assert issubclass(module.Params, msgspec.Struct)
    assert module.Params.__struct_config__.frozen
    assert module.Params.__struct_config__.forbid_unknown_fields


def test_what_draws_without_learning_is_all_in_the_table() -> None:
    assert {kind for kind in ALGORITHMS if isinstance(built(kind).algorithm, Stateless)} == set(STATELESS)


@pytest.mark.parametrize("floor", [0.0, 0.3])
@pytest.mark.parametrize("kind", STATELESS)
def test_twenty_thousand_draws_follow_what_is_said_of_them(kind: str, floor: float) -> None:
    params, odds = STATELESS[kind]
    plans = (*PLANS, Plan("c", "m"))
    made = policy("p", {"p": Spec(kind, params, floor, 9)}, plans, "a", encoder)
    expected = {name: (1 - floor) * share + floor / 3 for name, share in odds.items()}

    # chi-square, at most 2 degrees of freedom: 13.8 is passed once in 1,000 seeds
    assert surprise(made, None, lambda _: Situation(candidates("abc")), expected) < 13.8


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
        ("rules", {"rules": [{"plan": "a"}]}, ["plan", "rules"]),
        ("rules", {"signals": {"x": {"keyword": ["a"]}}}, ["keyword", "signals"]),
    ],
)
def test_parameters_that_do_not_fit_are_refused_in_words(kind: str, params: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"\S") as caught:
        built("p", p=Spec(kind, params))

    assert all(word in str(caught.value) for word in words)
    assert found("p", p=Spec(kind, params)) == [str(caught.value)]


def test_problems_with_the_plans_are_found_before_anything_runs() -> None:
    assert len(found("p", p=Spec("fixed", {"plan": "c"}))) == 1
    assert len(found("p", p=Spec("weighted", {"weights": {"c": 1, "d": -1}}))) == 3


@pytest.mark.parametrize(
    ("wrapper", "words"),
    [
        ({"type": "glued"}, ["unknown wrapper type `glued`", "sticky"]),
        ({}, ["a wrapper needs a `type`", "frozen"]),
        ({"type": "frozen", "colour": 1}, ["colour"]),
    ],
)
def test_wrappers_that_cannot_be_are_refused_in_words(wrapper: dict[str, Any], words: list[str]) -> None:
    (said,) = found("p", p=Spec("random", wrappers=[wrapper]))

    assert all(word in said for word in words)


def test_an_encoder_that_cannot_be_had_is_a_problem() -> None:
    def none(name: str) -> Encoder:
        raise ValueError(f"the encoder `{name}` is not installed")

    assert problems("p", {"p": Spec("neighbors")}, PLANS, "a", none) == ["the encoder `static` is not installed"]


class Doubled:
    """A wrapper that is told by its parameters whom it needs, too, and shows in which order wrappers are put on."""

    class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        needs: str = ""
        label: str = ""

    @staticmethod
    def problems(params: Params, _plans: list[str]) -> list[str]:
        return ["it is bad"] if params.label == "bad" else []

    @staticmethod
    def build(params: Params, inner: Any, _plans: Any, kit: Any) -> Any:
        if params.needs:
            kit.policy(params.needs)
        return SimpleNamespace(label=params.label, inner=inner, empty=inner.empty)


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "WRAPPERS", {"doubled": "doubled"})
    load = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda path: Doubled if path == "doubled" else load(path))


@pytest.mark.usefixtures("doubled")
def test_the_first_wrapper_is_the_innermost() -> None:
    wrappers = [{"type": "doubled", "label": "in"}, {"type": "doubled", "label": "out"}]
    made: Any = built("p", p=Spec("fixed", wrappers=wrappers)).algorithm

    assert (made.label, made.inner.label) == ("out", "in")


@pytest.mark.usefixtures("doubled")
def test_what_a_wrapper_finds_is_told_with_its_name() -> None:
    assert found("p", p=Spec("fixed", wrappers=[{"type": "doubled", "label": "bad"}])) == ["doubled: it is bad"]


@pytest.mark.usefixtures("doubled")
def test_policies_that_need_each_other_in_a_circle_are_refused() -> None:
    def needing(name: str) -> Spec:
        return Spec("fixed", wrappers=[{"type": "doubled", "needs": name}])

    assert found("p", p=needing("q"), q=needing("r"), r=needing("p")) == ["policies name each other in a circle: p -> q -> r -> p"]
    assert found("p", p=needing("p")) == ["policies name each other in a circle: p -> p"]
    assert found("p", p=needing("q"), q=Spec("random")) == []
    assert found("p", p=needing("q")) == ["no policy is called `q`"]


def test_nothing_can_be_registered_from_outside() -> None:
    with pytest.raises(TypeError):
        ALGORITHMS["mine"] = ALGORITHMS["fixed"]  # type: ignore[index]
