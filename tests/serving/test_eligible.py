"""Which plans may run a request, and what a caller hears when none may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.config.load import parse
from gateway.serving.eligible import Eligible, eligible
from gateway.serving.state import RealModel, State, VirtualModel, build
from gateway.wire.errors import ApiError
from policies.values.prompt import Prompt

MODELS: dict[str, Any] = {
    "small": {"context": 1_000, "capabilities": ["tools"], "price": {"input": 1, "output": 2}},
    "large": {"context": 8_000, "capabilities": ["tools", "vision", "json_schema"], "price": {"input": 10, "output": 20}},
    "unknown": {},
}


def built(models: dict[str, Any] = MODELS, plans: dict[str, Any] | None = None) -> State:
    config = {
        "version": 1,
        "backends": {name: {"url": f"http://{name}", "models": {name: name}} for name in models},
        "models": models,
        "policies": {"any": {"type": "random"}},
        "virtual_models": {"auto": {"policy": "any", "plans": plans or {name: {"model": name} for name in models}}},
        "keys": [{"name": "k", "sha256": "a" * 64}],
    }
    return build(parse(json.dumps(config), {}).config, "hash", lambda name: name)


def asked(prompt: Prompt, state: State | None = None, **wishes: Any) -> Eligible:
    auto = (state or built()).names["auto"]
    assert isinstance(auto, VirtualModel)
    return eligible(auto.plans, auto.models, prompt, **wishes)


def reasons(found: Eligible) -> dict[str, str]:
    return {each.plan: each.reason for each in found.excluded}


def test_all_may_serve_a_plain_request() -> None:
    found = asked(Prompt(tokens=100))

    assert (found.plans, found.excluded, found.most) == ((0, 1, 2), (), (None, None, None))


def test_a_model_must_be_able_to_do_what_the_request_needs() -> None:
    """One of which nothing is said may be able to."""
    assert reasons(asked(Prompt(images=True))) == {"small": "capability:vision"}
    assert reasons(asked(Prompt(tools=True))) == {}
    found = asked(Prompt(images=True, json_schema=True))
    assert (found.plans, reasons(found)) == ((1, 2), {"small": "capability:vision"})


def test_the_missing_ability_is_named_when_nobody_has_it() -> None:
    state = built({name: MODELS[name] for name in ("small", "large")})
    with pytest.raises(ApiError) as caught:
        asked(Prompt(logprobs=True), state)

    assert (caught.value.status, caught.value.code) == (400, "caller_unsupported_capability")
    assert "`logprobs`" in str(caught.value)


def test_prompt_and_answer_must_fit() -> None:
    """Estimated tokens rule out with a margin of a tenth: 1,111 x 0.9 = 999.9, and one token of answer makes it too long."""
    assert reasons(asked(Prompt(tokens=1_110))) == {}
    assert reasons(asked(Prompt(tokens=1_111))) == {"small": "context_length"}
    assert reasons(asked(Prompt(tokens=500, max_tokens=551))) == {"small": "context_length"}
    state = built({name: MODELS[name] for name in ("small", "large")})
    with pytest.raises(ApiError) as caught:
        asked(Prompt(tokens=9_000), state)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


def test_money_bounds_the_answer_and_rules_out_who_could_not_say_a_word() -> None:
    """1,000 tokens of prompt cost 0.001 and 0.01 USD; what is left of 0.011 pays for 5,000 and for 50 tokens."""
    found = asked(Prompt(tokens=1_000), max_cost=0.011)
    assert (found.most, found.plans) == ((5_000, 50, None), (0, 1, 2))
    found = asked(Prompt(tokens=1_000), max_cost=0.0102)
    assert (found.most[1], found.plans, reasons(found)) == (10, (0, 2), {"large": "max_cost"})
    state = built({name: MODELS[name] for name in ("small", "large")})
    with pytest.raises(ApiError) as caught:
        asked(Prompt(tokens=100), state, max_cost=1e-6)
    assert (caught.value.code, caught.value.param) == ("caller_max_cost", "trilemma.max_cost")


def test_budgets_of_plan_and_caller_bound_the_answer() -> None:
    state = built(plans={"short": {"model": "small", "budget_tokens": 100}, "long": {"model": "small"}})

    assert asked(Prompt(), state).most == (100, None)
    assert asked(Prompt(), state, budget_tokens=60).most == (60, 60)


def test_an_answer_that_will_be_cut_fits() -> None:
    """1,000 tokens of context: 500 x 0.9 of prompt leave room for 550 of answer."""
    plans = {"cut": {"model": "small", "budget_tokens": 550}, "less": {"model": "small", "budget_tokens": 551}, "whole": {"model": "small"}}
    found = asked(Prompt(tokens=500, max_tokens=100_000), built(plans=plans))
    assert (found.plans, reasons(found)) == ((0,), {"less": "context_length", "whole": "context_length"})
    assert asked(Prompt(tokens=500, max_tokens=100_000), built(plans=plans), budget_tokens=9).plans == (0, 1, 2)


def test_money_is_for_all_the_answers() -> None:
    """0.0102 USD less 0.001 for the prompt buy 4,600 tokens: four answers of 1,150."""
    assert asked(Prompt(tokens=1_000), max_cost=0.0102, answers=4).most[0] == 1_150


def test_reasoning_is_a_part_of_the_plan() -> None:
    efforts = {name: {"model": "small", "reasoning": name} for name in ("off", "low", "high")}
    state = built(plans={**efforts, "plain": {"model": "small"}})

    found = asked(Prompt(), state, reasoning="low")
    assert ([found.plans, reasons(found)]) == [(1, 3), {"off": "reasoning", "high": "reasoning"}]
    assert asked(Prompt(), built(plans=efforts), reasoning="medium").plans == (0, 1, 2)  # none has it: the caller's own field says it


def test_health_is_a_filter_while_somebody_is_well() -> None:
    state = built()
    small, large = state.names["small"], state.names["large"]
    assert isinstance(small, RealModel)
    assert isinstance(large, RealModel)
    small.backends[0].disabled = True

    found = asked(Prompt(), state)
    assert (found.plans, reasons(found)) == ((1, 2), {"small": "unavailable"})

    for backend in state.backends.values():
        backend.disabled = True
    assert asked(Prompt(), state).plans == (0, 1, 2)  # the relay says what is wrong, or waits
