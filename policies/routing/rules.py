"""Rules that an operator writes: signals of the request, Boolean conditions over them, and the plans that follow.

    p(a) = w_a / sum_b w_b over the eligible plans b of the first rule whose condition holds         rules with `weights`
    p(a) = 1 for the first eligible plan of that rule                                                rules with `plans`

Rules are tried by `priority`, the highest first, and among equals in the order in which they stand. Where none holds, or none of the plans
that the rule names is eligible, `otherwise` serves (its first eligible plan; by default the baseline), and where that is not eligible
either, the first candidate: there is always a decision. In the manner of the signals and decisions of the vLLM Semantic Router
(arXiv 2603.21354).

    signals:
      code: {keywords: [traceback, compile, "c++"]}
      tools: {tools: true}
      long: {tokens: {above: 4000}}
    rules:
      - {name: agents, when: {all: [code, tools]}, plans: [coder, large]}
      - {when: {any: [code, {not: long}]}, weights: {small: 9, large: 1}}
    otherwise: large

What chat interfaces ask by themselves (titles, tags, follow-up questions) is marked by who asks, as
`"trilemma": {"tags": {"task": "title"}, "learn": false}`, or known by its words; it goes to a cheap plan:

    signals:
      marked: {tag: {task: [title, tags, follow_up]}}
      titles: {keywords: ["generate a concise, 3-5 word title"]}
    rules: [{name: background, priority: 1, when: {any: [marked, titles]}, plans: [small]}]
    otherwise: large

Two pools with a boundary on the context (a pool of short windows keeps its cache small, so more calls run at once; same source):

    signals: {short: {tokens: {below: 4096}}, brief: {max_tokens: {below: 2048}}}
    rules: [{when: {all: [short, brief]}, plans: [pool-8k]}]
    otherwise: pool-64k
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from policies.conditions import signal, worlds
from policies.conditions.boolean import Condition, holds, names, parsed
from policies.conditions.encoder import Signals
from policies.conditions.signal import Signal, meant
from policies.policy import Encoder, Kit
from policies.routing.base import Stateless
from policies.values.decision import Odds, Scores
from policies.values.plan import Plan
from policies.values.situation import Situation


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """when: a condition (see policies.conditions.boolean); none: always. plans: in order of preference; or weights: to be drawn by."""

    when: str | dict[str, Any] | None = None
    plans: list[str] = []
    weights: dict[str, float] = {}
    name: str = ""
    priority: int = 0

    @property
    def named(self) -> tuple[str, ...]:
        """Every plan that it names."""
        return (*self.plans, *self.weights)


_NONE = Rule()


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """signals: see policies.conditions.signal. otherwise: plans where no rule holds, in order of preference; none: the baseline."""

    signals: dict[str, Signal] = {}
    rules: list[Rule] = []
    otherwise: str | list[str] = []


def problems(params: Params, plans: Sequence[str]) -> list[str]:
    """What cannot work: names that are not there, rules that can never match, rules that contradict each other."""
    found = signal.problems(params.signals)
    called = [rule.name for rule in params.rules if rule.name]
    found += [f"several rules are called `{name}`" for name in dict.fromkeys(called) if called.count(name) > 1]
    for label, rule in _ordered(params.rules):
        found += _rule_problems(label, rule, params.signals, list(plans))
    found += [
        f"`otherwise` names `{name}`, which is not among the plans{meant(name, list(plans))}"
        for name in _otherwise(params)
        if name not in plans
    ]
    if found:
        return found
    numbered = [
        worlds.Numbered(label, parsed(rule.when), (tuple(rule.plans), tuple(sorted(rule.weights.items()))))
        for label, rule in _ordered(params.rules)
    ]
    return worlds.findings(numbered, params.signals)


def build(params: Params, _plans: Sequence[Plan], kit: Kit) -> Rules:
    """The policy. Raises ValueError for signals that cannot be measured and conditions that cannot be read."""
    found = signal.problems(params.signals)
    if found:
        raise ValueError(found[0])
    encoder = Signals(params.signals, kit.encoder) if params.signals else None
    return Rules(params, encoder, kit.baseline)


class Rules(Stateless):
    """params: as configured. encoder: of its signals; None: there are none. baseline: a plan's name."""

    def __init__(self, params: Params, encoder: Encoder | None, baseline: str) -> None:
        self.encoders = (encoder,) if encoder else ()
        self._block = encoder.name if encoder else ""
        self._thresholds = {name: each.threshold for name, each in params.signals.items()}
        self._rules = [(parsed(rule.when), rule) for _, rule in _ordered(params.rules)]
        self._otherwise = (*_otherwise(params), baseline)

    def propensities(self, _state: None, situation: Situation, _scores: Scores) -> Odds:
        """The plans of the first rule that holds."""
        rule = self._first(situation)
        eligible = [each.plan.name for each in situation.candidates]
        weights = [rule.weights.get(name, 0.0) for name in eligible]
        total = sum(weights)
        if total > 0:
            return Odds(tuple(w / total for w in weights))
        served = next((name for name in (*rule.plans, *self._otherwise) if name in eligible), eligible[0])
        return Odds(tuple(1.0 if name == served else 0.0 for name in eligible))

    def _first(self, situation: Situation) -> Rule:
        """The first rule that holds; one without plans where none does, or where the signals could not be had."""
        facts: dict[str, int] = {}
        if self._thresholds:
            block = situation.blocks.get(self._block)
            if block is None:
                return _NONE
            facts = {name: int(number > limit) for (name, limit), number in zip(self._thresholds.items(), block.tolist(), strict=True)}
        return next((rule for condition, rule in self._rules if holds(condition, facts, 1)), _NONE)


def _otherwise(params: Params) -> tuple[str, ...]:
    return (params.otherwise,) if isinstance(params.otherwise, str) else tuple(params.otherwise)


def _ordered(rules: Sequence[Rule]) -> list[tuple[str, Rule]]:
    """The rules in the order in which they are tried, each with what it is called in a sentence."""
    labelled = [(f"the rule `{rule.name}`" if rule.name else f"rule {number}", rule) for number, rule in enumerate(rules, 1)]
    return sorted(labelled, key=lambda each: -each[1].priority)


def _rule_problems(label: str, rule: Rule, signals: Mapping[str, Signal], plans: list[str]) -> list[str]:
    found = [f"{label} names the plan `{name}`, which is not there{meant(name, plans)}" for name in rule.named if name not in plans]
    if bool(rule.plans) == bool(rule.weights):
        found.append(f"{label} needs either `plans` or `weights`")
    found += [f"{label} gives `{name}` a weight that is negative or not finite" for name, w in rule.weights.items() if not 0 <= w < 1e300]
    if rule.weights and not sum(rule.weights.values()) > 0:
        found.append(f"{label} gives no plan a positive weight")
    try:
        condition: Condition = parsed(rule.when)
    except ValueError as error:
        return [*found, f"{label}: {error}"]
    unknown = dict.fromkeys(name for name in names(condition) if name not in signals)
    return found + [f"{label} asks for the signal `{name}`, which is not there{meant(name, signals)}" for name in unknown]
