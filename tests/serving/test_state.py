from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.config.load import parse
from gateway.config.schema import Config
from gateway.engines.base import ModelInfo
from gateway.serving.state import RealModel, State, VirtualModel, build
from gateway.wire.errors import ApiError
from gateway.wire.usage import Rates
from policies.values.plan import Candidate
from policies.values.situation import Situation

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


def odds(virtual: VirtualModel) -> tuple[float, ...]:
    """The probabilities of its plans, before the floor."""
    algorithm = virtual.policy.algorithm
    situation = Situation(tuple(Candidate(plan, index) for index, plan in enumerate(virtual.plans)))
    return algorithm.propensities(algorithm.empty(), situation, algorithm.estimate(algorithm.empty(), situation)).drawn


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


def test_a_retired_model_is_its_successor() -> None:
    old = {"aliases": ["older"], "replaced_by": "fast", "queue": {"slots": 3}}
    virtual = {"auto": {"policy": "fixed", "plans": {"p": {"model": "old"}}}}
    made = config(models=json.loads(config().model_dump_json(include={"models"}))["models"] | {"old": old}, virtual_models=virtual)
    built = state(made)

    small = built.names["small"]
    assert built.names["old"] is built.names["older"] is small
    auto = built.names["auto"]
    assert isinstance(auto, VirtualModel) and auto.models[0].public == "small" and auto.plans[0].model == "old"
    built.take_up()
    again = state(made, built)
    assert isinstance(small, RealModel) and small.admission is None
    assert again.names["old"] is again.names["small"]


def test_a_model_that_is_retired_while_it_is_served_keeps_its_replicas_apart() -> None:
    models = {"small": {"replaced_by": "large"}, "large": {}}
    before = state(config(models=models, virtual_models={}))
    after = state(config(models={"small": {}, "large": {}}, virtual_models={}), before)

    assert before.names["small"] is before.names["large"]
    small = after.names["small"]
    assert isinstance(small, RealModel) and [backend.name for backend in small.backends] == ["a"]


def test_an_alias_is_its_model() -> None:
    built = state(config())

    assert built.names["fast"] is built.names["cheap"] is built.names["small"]


def test_a_virtual_model_has_plans_over_real_models() -> None:
    auto = state(config()).names["auto"]

    assert isinstance(auto, VirtualModel)
    assert [(plan.name, plan.model, plan.strategy) for plan in auto.plans] == [("s", "fast", "single"), ("l", "large", "single")]
    assert [model.public for model in auto.models] == ["small", "large"]
    assert odds(auto) == (0.25, 0.75)
    assert (auto.policy.floor, auto.policy.seed, auto.deadline_ms) == (0.1, 7, 500)


def test_fixed_needs_no_section_of_its_own() -> None:
    made = config(virtual_models={"one": {"policy": "fixed", "plans": {"p": {"model": "small"}}}}, policies={})
    one = state(made).names["one"]

    assert isinstance(one, VirtualModel)
    assert (one.policy.name, odds(one)) == ("fixed", (1.0,))


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


def test_a_backend_whose_section_changed_is_the_engine_it_was_unless_it_is_another_now() -> None:
    """Else a reload would make a gateway unready, and take a model that is not the one of before for the right one."""
    before = state(config())
    a = before.backends["a"]
    a.answered = True
    backends = {name: {"url": spec.url, "models": dict(spec.models)} for name, spec in config().backends.items()}
    for change, same in (
        ({"weight": 2.0}, True),
        ({"key": "rotated"}, True),
        ({"url": "http://elsewhere"}, False),
        ({"engine": "vllm"}, False),
    ):
        after = state(config(backends={**backends, "a": backends["a"] | change}), before).backends["a"]
        assert after is not a
        assert (after.answered, after.fingerprints is a.fingerprints, after.cards is a.cards) == (same, same, same)


# -- who stands in, and how long calls may take


def four(**sections: Any) -> State:
    """Models a to d on a backend each, and what is said of them."""
    backends = {f"on-{name}": {"url": f"http://{name}", "models": {name: name}} for name in "abcd"}
    return state(config(backends=backends, **{"policies": {}, "virtual_models": {}, **sections}))


def stand_ins(route: object) -> list[str]:
    assert isinstance(route, RealModel)
    return [each.public for each in route.stand_ins]


def test_nearer_models_stand_in_first_each_once() -> None:
    models = {"a": {"fallbacks": ["b", "see"]}, "b": {"fallbacks": ["d"]}, "c": {"aliases": ["see"], "fallbacks": ["d", "b"]}}
    names = four(models=models).names

    assert [stand_ins(names[name]) for name in "abcd"] == [["b", "c", "d"], ["d"], ["d", "b"], []]
    assert stand_ins(names["see"]) == ["d", "b"]


def test_behind_a_virtual_model_the_baseline_and_the_other_plans_stand_in_too() -> None:
    plans = {"one": {"model": "a"}, "two": {"model": "b"}, "again": {"model": "a"}, "last": {"model": "c"}}
    virtual = {"v": {"policy": "split", "plans": plans, "baseline": "last"}}
    policies = {"split": {"type": "weighted"}}
    names = four(models={"a": {"fallbacks": ["d"]}}, virtual_models=virtual, policies=policies).names

    route = names["v"]
    assert isinstance(route, VirtualModel)
    assert [model.public for model in route.models] == ["a", "b", "a", "c"]
    assert [stand_ins(model) for model in route.models] == [["d", "c", "b"], ["c", "a"], ["d", "c", "b"], ["a", "b"]]
    assert stand_ins(names["a"]) == ["d"], "asked for by its own name it is as before"


def test_bounds_are_those_of_the_narrowest_place_that_gives_them() -> None:
    backends = {
        "x": {"url": "http://x", "models": {"a": "a", "b": "b"}, "timeouts": {"connect_s": 1, "first_byte_s": 1, "idle_s": 1}},
        "y": {"url": "http://y", "models": {"a": "a"}, "timeouts": {"connect_s": 2}},
    }
    models = {"a": {"fallbacks": ["b"], "timeouts": {"first_byte_s": 30, "idle_s": 0.5}}}
    virtual = {"v": {"policy": "fixed", "plans": {"p": {"model": "a"}}, "timeouts": {"idle_s": 9, "total_s": 70}}}
    names = state(config(backends=backends, models=models, policies={}, virtual_models=virtual)).names

    def bounds(model: RealModel, name: str) -> tuple[float, float, float, float]:
        limits = model.limits[name]
        return limits.connect_s, limits.first_byte_s, limits.idle_s, limits.total_s

    one, behind = names["a"], names["v"]
    assert isinstance(one, RealModel) and isinstance(behind, VirtualModel)
    assert (bounds(one, "x"), bounds(one, "y")) == ((1, 30, 0.5, 3_600), (2, 30, 0.5, 3_600))
    assert (bounds(behind.models[0], "x"), bounds(behind.models[0], "y")) == ((1, 30, 9, 70), (2, 30, 9, 70))
    assert bounds(behind.models[0].stand_ins[0], "x") == (1, 1, 9, 70)
    assert bounds(one.stand_ins[0], "x") == (1, 1, 1, 3_600)


@pytest.mark.parametrize(("context", "held"), [(None, 2_000), (500, 500), (9_000, 9_000)])
def test_what_a_model_holds_is_as_configured_or_as_the_engines_say(context: int | None, held: int) -> None:
    """Of several replicas what the smallest holds; of one that does not say, nothing is known."""
    backends = {name: {"url": f"http://{name}", "models": {"a": "org/A"}} for name in "xyz"}
    built = state(config(backends=backends, models={"a": {"context": context}}, policies={}, virtual_models={}))
    model = built.names["a"]
    assert isinstance(model, RealModel)
    assert model.held_context() == context

    for name, length in (("x", 4_000), ("y", 2_000), ("z", None)):
        built.backends[name].cards["org/A"] = ModelInfo("org/A", length, {})
        built.backends[name].cards["other"] = ModelInfo("other", 1, {})
    assert model.held_context() == held


def test_a_reload_keeps_queues_and_what_is_known_of_waits_and_changes_no_bound_by_itself() -> None:
    def made(slots: int, **hedge: float) -> Config:
        return config(models={"small": {"queue": {"slots": slots}, "hedge": hedge}}, policies={}, virtual_models={})

    def route(of: State) -> RealModel:
        found = of.names["small"]
        assert isinstance(found, RealModel) and found.admission is not None
        return found

    before = state(made(1, share=0.1))
    same = state(made(3, share=0.1), before)
    assert route(same).admission is route(before).admission
    assert route(same).hedging is route(before).hedging
    assert route(state(made(3, share=0.2), same)).hedging is not route(same).hedging
    admission = route(same).admission
    assert admission is not None

    async def taken() -> int:
        async with asyncio.timeout(5):
            slots = [await admission.enter("t")]
            while len(slots) < 9:
                task = asyncio.ensure_future(admission.enter("t"))
                await asyncio.sleep(0)
                if not task.done():
                    task.cancel()
                    break
                slots.append(task.result())
        for slot in slots:
            slot.release()
        return len(slots)

    assert asyncio.run(taken()) == 1
    same.take_up()
    assert asyncio.run(taken()) == 3


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


def test_an_endpoint_is_made_anew_exactly_when_its_settings_change() -> None:
    def reading(**changed: Any) -> Config:
        endpoints = {name: {"url": "http://e", "model": "m", "dimensions": 2, "key": "k"} for name in ("one", "two")}
        endpoints["two"] |= changed
        policies = {"split": {"type": "linucb", "params": {"features": ["endpoint:one", "endpoint:two"]}}}
        return config(policies=policies, embeddings=endpoints)

    def encoders(built: State) -> list[Any]:
        auto = built.names["auto"]
        assert isinstance(auto, VirtualModel)
        return list(auto.policy.algorithm.encoders)

    first = state(reading())
    one, two = encoders(first)
    assert [one.name, two.name] == [each.name for each in encoders(state(reading()))]

    assert encoders(state(reading(), first)) == [one, two]
    for changed in ({"model": "n"}, {"url": "http://f"}, {"key": "l"}, {"timeout_s": 1.0}):
        again = state(reading(**changed), first)
        assert encoders(again)[0] is one
        assert encoders(again)[1] is not two
        assert (encoders(again)[1].name == two.name) is ("model" not in changed)
    assert encoders(first) == [one, two]
    with pytest.raises(ValueError, match="there is no endpoint `two`"):
        state(reading().model_copy(update={"embeddings": {"one": first.config.embeddings["one"]}}), first)
