from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.config.load import parse
from gateway.config.schema import Config
from gateway.serving.state import RealModel, State, VirtualModel, build
from gateway.wire.errors import ApiError
from gateway.wire.usage import Rates

DIGESTS = [f"{number:064x}" for number in range(1, 9)]


def config(**sections: Any) -> Config:
    base = {
        "version": 1,
        "backends": {
            "a": {"url": "http://a:8000/v1/", "models": {"small": "org/Small", "large": "large"}},
            "b": {"url": "http://b:8000", "models": {"large": "Large-2"}, "key": "k-b"},
        },
        "models": {
            "small": {"aliases": ["fast", "cheap"], "context": 2048, "price": {"input": 0.1, "output": 0.4}},
            "large": {"price": {"input": 1, "cached_input": 0.25, "output": 3}},
        },
        "policies": {
            "split": {"type": "weighted", "params": {"weights": {"s": 1, "l": 3}}, "floor": 0.1, "seed": 7},
            "other": {"type": "fixed", "params": {"plan": "elsewhere"}},
        },
        "virtual_models": {
            "auto": {"policy": "split", "plans": {"s": {"model": "fast"}, "l": {"model": "large"}}, "caps": {"deadline_ms": 500}}
        },
        "keys": [{"name": "one", "sha256": DIGESTS[0]}],
    }
    return parse(json.dumps(base | sections), {}).config


def state(made: Config, before: State | None = None) -> State:
    return build(made, "hash", lambda name: f"http://127.0.0.1/{name}", before)


def test_a_name_leads_to_the_backends_that_serve_it() -> None:
    built = state(config())

    small, large = built.names["small"], built.names["large"]
    assert isinstance(small, RealModel)
    assert isinstance(large, RealModel)
    assert [backend.name for backend in small.backends] == ["a"]
    assert [backend.name for backend in large.backends] == ["a", "b"]
    assert large.backends[0] is small.backends[0]
    assert large.backends[0].url == "http://a:8000"
    assert large.backends[1].models["large"] == "Large-2"
    assert (small.context, large.context) == (2048, None)


def test_prices_come_with_the_model_and_cached_tokens_cost_as_fresh_ones_unless_told() -> None:
    built = state(config())

    assert built.names["small"].rates == Rates(input=0.1, cached_input=0.1, output=0.4)  # type: ignore[union-attr]
    assert built.names["large"].rates == Rates(input=1.0, cached_input=0.25, output=3.0)  # type: ignore[union-attr]


def test_an_alias_is_its_model() -> None:
    built = state(config())

    assert built.names["fast"] is built.names["cheap"] is built.names["small"]


def test_a_virtual_model_has_plans_over_real_models() -> None:
    auto = state(config()).names["auto"]

    assert isinstance(auto, VirtualModel)
    assert [(plan.name, plan.model, plan.strategy) for plan in auto.plans] == [("s", "fast", "single"), ("l", "large", "single")]
    assert [model.public for model in auto.models] == ["small", "large"]
    assert auto.policy.propensities(auto.plans) == (0.25, 0.75)
    assert (auto.policy.floor, auto.policy.seed, auto.deadline_ms) == (0.1, 7, 500)


def test_fixed_needs_no_section_of_its_own() -> None:
    made = config(virtual_models={"one": {"policy": "fixed", "plans": {"p": {"model": "small"}}}}, policies={})
    one = state(made).names["one"]

    assert isinstance(one, VirtualModel)
    assert (one.policy.name, one.policy.propensities(one.plans)) == ("fixed", (1.0,))


def test_a_caller_may_ask_for_another_policy_if_it_fits_the_plans() -> None:
    built = state(config())
    auto = built.names["auto"]
    assert isinstance(auto, VirtualModel)

    assert built.policy_for(auto, "split").name == "split"
    for name in ("other", "unknown", ""):
        with pytest.raises(ApiError) as caught:
            built.policy_for(auto, name)
        assert (caught.value.status, caught.value.param) == (400, "trilemma.policy")


def test_keys_see_aliases_and_virtual_models_too() -> None:
    keys = [
        {"name": "all", "sha256": DIGESTS[0]},
        {"name": "some", "sha256": DIGESTS[1], "models": ["a*", "fast"]},
        {"name": "none", "sha256": DIGESTS[2], "models": []},
    ]
    found = state(config(keys=keys)).keys

    everything, some, none = (found[bytes.fromhex(digest)] for digest in DIGESTS[:3])
    assert [name for name in ("small", "fast", "cheap", "large", "auto") if some.may_use(name)] == ["fast", "auto"]
    assert everything.may_use("auto")
    assert not none.may_use("small")


def test_a_reload_keeps_the_counts_of_what_did_not_change() -> None:
    before = state(config())
    before.backends["a"].in_flight = 3
    before.backends["b"].in_flight = 2
    before.backends["a"].answered = True
    backends = json.loads(json.dumps({name: {"url": spec.url, "models": dict(spec.models)} for name, spec in config().backends.items()}))
    backends["b"]["key"] = "rotated"

    after = state(config(backends=backends), before)

    assert after.backends["a"] is before.backends["a"]
    assert after.backends["b"] is not before.backends["b"]
    assert after.backends["b"].in_flight == 0
    assert before.backends["b"].in_flight == 2


def test_a_managed_backend_is_where_it_was_started() -> None:
    backends = {"local": {"launch": "llama-server", "model": "smollm2", "models": {"small": "small"}}}
    made = config(backends=backends, models={}, virtual_models={}, policies={})

    assert state(made).backends["local"].url == "http://127.0.0.1/local"


def test_models_are_ready_when_one_of_their_backends_has_answered() -> None:
    built = state(config())
    assert built.unanswered() == ["small", "large"]

    built.backends["b"].answered = True
    assert built.unanswered() == ["small"]
    built.backends["a"].answered = True
    assert built.unanswered() == []


def test_no_backend_shows_its_key() -> None:
    built = state(config())

    assert built.backends["b"].authorization == b"Bearer k-b"
    assert "k-b" not in repr(built)
