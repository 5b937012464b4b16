from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml

from policies.policy import Kit, Policy, decide
from policies.routing import rules
from policies.routing.rules import Params, Rules, build, problems
from policies.values.plan import Plan
from policies.values.prompt import Prompt, Turn
from policies.values.situation import Situation
from tests.support.encoders import Letters
from tests.support.given import candidates, surprise

KIT = Kit({"static": Letters()}.__getitem__, lambda _: None, "d")  # type: ignore[arg-type, return-value]
PLANS = tuple(Plan(name, f"model-{name}") for name in "abcd")


def params(text: str) -> Params:
    return msgspec.convert(yaml.safe_load(text), Params)


def built(text: str) -> Rules:
    found = params(text)
    assert problems(found, "abcd") == []
    return build(found, PLANS, KIT)


def odds(policy: Rules, prompt: Prompt, names: str = "abcd") -> dict[str, float]:
    eligible = tuple(each for each in candidates("abcd") if each.plan.name in names)
    situation = Situation(eligible, {each.name: each.encode(prompt) for each in policy.encoders})
    drawn = policy.propensities(None, situation, policy.estimate(None, situation)).drawn
    return {each.plan.name: share for each, share in zip(eligible, drawn, strict=True) if share}


def said(text: str, **more: Any) -> Prompt:
    return Prompt((Turn("user", text),), **more)


ROUTES = """
signals:
  code: {keywords: [traceback, compile]}
  tools: {tools: true}
  long: {tokens: {above: 4000}}
  near: {similar_to: [ab], above: 0.9}
rules:
  - {name: agents, when: {all: [code, tools]}, plans: [b, a]}
  - {when: {any: [code, {not: long}]}, weights: {a: 3, c: 1}}
  - {when: near, plans: [c], priority: 5}
otherwise: [c, b]
"""


def test_the_first_rule_that_holds_decides() -> None:
    policy = built(ROUTES)

    assert odds(policy, said("why this traceback?", tools=True, tokens=9_000)) == {"b": 1.0}
    assert odds(policy, said("why this traceback?", tokens=9_000)) == {"a": 0.75, "c": 0.25}
    assert odds(policy, said("why?", tokens=10)) == {"a": 0.75, "c": 0.25}
    assert odds(policy, said("why?", tokens=9_000)) == {"c": 1.0}


def test_priority_goes_before_place() -> None:
    policy = built(ROUTES)

    assert odds(policy, said("compile", tools=True)) == {"b": 1.0}
    assert odds(policy, said("ab" * 30 + " compile", tools=True)) == {"c": 1.0}  # and it is like the example now


def test_plans_are_a_preference_and_weights_a_split_of_those_that_can_serve() -> None:
    policy = built(ROUTES)
    agents, split = said("compile", tools=True), said("why?")

    assert odds(policy, agents, "acd") == {"a": 1.0}
    assert odds(policy, agents, "bd") == {"b": 1.0}
    assert odds(policy, split, "cd") == {"c": 1.0}


def test_where_no_plan_of_the_rule_can_serve_otherwise_does_then_the_baseline_then_the_first() -> None:
    policy = built("{signals: {t: {tools: true}}, rules: [{when: t, plans: [a]}, {plans: [b]}], otherwise: [c]}")
    tools = said("", tools=True)

    assert odds(policy, tools, "abcd") == {"a": 1.0}
    assert odds(policy, tools, "bcd") == {"c": 1.0}
    assert odds(policy, tools, "bd") == {"d": 1.0}
    assert odds(policy, tools, "b") == {"b": 1.0}


@pytest.mark.parametrize(
    "prompt", [Prompt(), Prompt((Turn("user", ""),)), Prompt(images=True), Prompt((Turn("tool", "{}"),), tool_loop=True)]
)
def test_a_request_without_text_is_decided_too(prompt: Prompt) -> None:
    policy = built("{signals: {code: {keywords: [code]}, near: {similar_to: [a]}}, rules: [{when: {any: [code, near]}, plans: [a]}]}")

    assert odds(policy, prompt) == {"d": 1.0}


def test_the_baseline_serves_where_the_signals_could_not_be_had() -> None:
    policy = built("{signals: {t: {tools: true}}, rules: [{when: {not: t}, plans: [a]}]}")

    assert policy.propensities(None, Situation(candidates("abcd")), policy.estimate(None, Situation(candidates("ab")))).drawn == (
        0,
        0,
        0,
        1,
    )


def test_no_rules_at_all_are_the_baseline() -> None:
    policy = built("{}")

    assert policy.encoders == ()
    assert odds(policy, said("hello")) == {"d": 1.0}
    assert odds(built("{rules: [{plans: [a]}]}"), said("hello")) == {"a": 1.0}


def test_a_decision_can_be_made_again_from_its_block_and_thresholds_are_read_with_the_rules() -> None:
    text = "{signals: {near: {similar_to: [ab], above: %s}}, rules: [{when: near, plans: [a]}]}"
    strict, loose = built(text % 0.95), built(text % 0.9)
    (encoder,) = strict.encoders
    logged = np.array(encoder.encode(said("aaabb")), np.float32)  # cosine 5 / sqrt(26): 0.98
    other = np.array(encoder.encode(said("aab")), np.float32)  # 3 / sqrt(10): 0.949
    situations = [Situation(candidates("abcd"), {encoder.name: block}) for block in (logged, other)]

    def chosen(policy: Rules) -> list[int]:
        return [decide(Policy("p", policy, 0.0, 0), None, situation, "x").chosen for situation in situations]

    assert chosen(strict) == [0, 3]
    assert chosen(loose) == [0, 0]


def test_two_pools_part_at_a_length_of_context() -> None:
    policy = built(
        "{signals: {short: {tokens: {below: 4096}}, brief: {max_tokens: {below: 2048}}},"
        " rules: [{when: {all: [short, brief]}, plans: [a]}], otherwise: b}"
    )

    assert odds(policy, Prompt(tokens=4_095, max_tokens=2_047)) == {"a": 1.0}
    assert odds(policy, Prompt(tokens=4_096, max_tokens=2_047)) == {"b": 1.0}
    assert odds(policy, Prompt(tokens=10)) == {"b": 1.0}


def test_twenty_thousand_requests_are_split_as_the_rules_say() -> None:
    algorithm = built(ROUTES)
    (encoder,) = algorithm.encoders
    block = {encoder.name: encoder.encode(said("why?"))}

    # 0.75, 0.25 with a floor of 0.2 over four; chi-square, 3 degrees of freedom: 16.3 is passed once in 1,000 seeds
    expected = {"a": 0.65, "b": 0.05, "c": 0.25, "d": 0.05}
    assert surprise(Policy("p", algorithm, 0.2, 2), None, lambda _: Situation(candidates("abcd"), block), expected) < 16.3


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{rules: [{plans: [large]}]}", ["rule 1", "`large`", "not there"]),
        ("{rules: [{plans: [smal]}]}", ["`smal`", "did you mean `small`?"]),
        ("{rules: [{name: x, weights: {a: 1, smal: 1}}]}", ["the rule `x`", "did you mean `small`?"]),
        ("{otherwise: smal}", ["`otherwise`", "did you mean `small`?"]),
        ("{signals: {code: {tools: true}}, rules: [{when: cod, plans: [a]}]}", ["rule 1", "`cod`", "did you mean `code`?"]),
        ("{rules: [{}]}", ["rule 1", "`plans` or `weights`"]),
        ("{rules: [{plans: [a], weights: {b: 1}}]}", ["either"]),
        ("{rules: [{weights: {a: -1, b: 2}}]}", ["`a`", "negative"]),
        ("{rules: [{weights: {a: 0}}]}", ["no plan a positive weight"]),
        ("{rules: [{when: {nor: [a]}, plans: [a]}]}", ["rule 1: a condition is"]),
        ("{signals: {x: {keywords: []}}}", ["the signal `x`", "nothing in"]),
        ("{rules: [{plans: [a]}, {plans: [a]}]}", ["rule 2 says again what rule 1 says"]),
        ("{rules: [{plans: [a]}, {plans: [b]}]}", ["rule 2 and rule 1 contradict each other"]),
        ("{signals: {t: {tools: true}}, rules: [{plans: [a]}, {when: t, plans: [b]}]}", ["rule 2", "after rule 1, which always matches"]),
        ("{signals: {t: {tools: true}}, rules: [{when: t, plans: [a]}, {plans: [b], priority: 1}]}", ["rule 1", "after rule 2"]),
        ("{signals: {t: {tools: true}}, rules: [{name: x, when: t, plans: [a]}, {name: x, plans: [b]}]}", ["several rules are called `x`"]),
    ],
)
def test_rules_that_cannot_work_are_problems(text: str, parts: list[str]) -> None:
    (sentence,) = problems(params(text), ["a", "b", "small"])

    assert all(part in sentence for part in parts)


def test_what_is_wrong_with_signals_is_told_by_build_too() -> None:
    with pytest.raises(ValueError, match="one question"):
        build(params("{signals: {x: {}}}"), PLANS, KIT)


@pytest.mark.parametrize("example", [2, 3])
def test_the_examples_in_the_documentation_work(example: int) -> None:
    blocks = [block for block in (rules.__doc__ or "").split("\n\n") if block.startswith("    signals")]

    assert problems(params(blocks[example - 2]), ["coder", "large", "small", "pool-8k", "pool-64k"]) == []


def test_rules_need_no_numpy_until_a_signal_is_measured() -> None:
    code = "import sys; import policies.routing.rules, policies.routing.uniform, policies.registry; sys.exit('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
