"""Deciding which plan of a virtual model runs a request: what is known of it -> who may serve -> scores -> probabilities -> one draw.

    model = await choose(deciding, route, policy, receipt, fields, asked)      raises ApiError 400 when no plan fits the request

A decision never fails a request: where features or the policy do, the baseline plan serves, and that is counted and told.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gateway.serving.call import Receipt
from gateway.serving.choice import Choice, Decided, Excluded, Snapshot, Weighed
from gateway.serving.decoding import PATH as DECODED
from gateway.serving.eligible import Eligible, Strategies, eligible, least
from gateway.serving.expected import Expectations
from gateway.serving.options import Options
from gateway.serving.prompt import answered, conversation, prompt_of, raws_of
from gateway.serving.standing import Standings
from gateway.serving.state import RealModel, VirtualModel
from gateway.wire.request import Fields
from policies.policy import Encoder, Policy, RoutingPolicy, decide, needed
from policies.values.decision import Decision
from policies.values.plan import Candidate, Reasoning
from policies.values.prompt import Prompt
from policies.values.situation import Prices, Situation, Standing

if TYPE_CHECKING:
    from policies.values.situation import Vector

log = logging.getLogger("trilemma.decisions")

_EFFORTS: Final[Mapping[bytes, Reasoning]] = {
    b'"none"': "off",
    b'"minimal"': "low",
    b'"low"': "low",
    b'"medium"': "medium",
    b'"high"': "high",
}


# Reasons against a plan that are none against its model in the place of another.
_MAY_STAND_IN: Final = frozenset(("unavailable", "reasoning"))
_MOST_FRAMES: Final = 4

# Of a preference that says nothing of quality: then all else decides.
_LEAST_QUALITY: Final = 1e-6

NOTHING: Final = Snapshot(0, None)
Pseudonym = Callable[[str, str], str]


def _as_it_is(_tenant: str, id_: str) -> str:
    return id_


@dataclass(slots=True)
class Deciding:
    """What a process knows for decisions beside its state. snapshots: what policies have learnt, by scope; swapped whole. failing: virtual
    models that cannot decide now, and where it failed last, as it was logged."""

    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    standings: Standings = field(default_factory=Standings)
    expectations: Expectations = field(default_factory=Expectations)
    pseudonym: Pseudonym = _as_it_is
    failing: dict[str, str] = field(default_factory=dict)
    now: Callable[[], float] = time.time

    def ended(self, receipt: Receipt) -> None:
        """A request has ended: what it took is remembered, and where its conversation stands, unless nothing may be learnt from it: what
        an interface asks by itself, for a title, does not move the conversation."""
        self.expectations.ended(receipt)
        choice = receipt.choice
        if choice is not None and choice.key is not None and receipt.outcome == "ok" and receipt.learn:
            usage = receipt.usage
            tokens = 0 if usage is None else usage.prompt + usage.completion
            self.standings.note(choice.key, choice.plan.name, tokens, choice.unit, choice.decided.standing)


async def choose(deciding: Deciding, route: VirtualModel, policy: Policy, receipt: Receipt, fields: Fields, asked: Options) -> RealModel:
    """The model that runs the request; the plan, and all about it, stands on the receipt then. Raises ApiError 400."""
    begun = time.perf_counter()
    principal = receipt.principal
    tenant = principal.tenant if principal is not None else ""
    raws = raws_of(fields)
    prompt = prompt_of(fields, raws, tenant, receipt.tags)
    reasoning = asked.reasoning or _EFFORTS.get(bytes(fields.reasoning_effort))
    max_cost = least(route.max_cost, asked.max_cost)
    if asked.max_cost is not None and max_cost != asked.max_cost:
        receipt.clipped.append("max_cost")
    may = eligible(
        route.plans,
        route.models,
        prompt,
        reasoning=reasoning,
        max_cost=max_cost,
        budget_tokens=asked.budget_tokens,
        answers=int(fields.n or 1),
        strategies=_strategies(route, receipt, fields, asked) if route.decodes or asked.strategy is not None else None,
    )
    key, standing, unit, first = _place(deciding, route, receipt, tenant, raws)
    candidates = _candidates(deciding, route, may, prompt, standing)
    snapshot = deciding.snapshots.get(f"{route.name}/{policy.name}", NOTHING)
    prices = _prices(deciding, route, candidates, asked)
    explore = receipt.learn and not prompt.tool_loop and not _too_late(deciding, candidates, route, asked)
    blocks: Mapping[str, Vector] = {}
    features: bytes | None = None
    fallback: str | None = None
    try:
        if policy.algorithm.encoders:
            blocks = await _encoded(policy.algorithm, prompt, route.encoder_s)
        features = _packed(blocks)
    except TimeoutError:
        fallback = "features_late"
    except Exception as error:
        fallback = _failed(deciding, route, receipt, error)
    situation = Situation(candidates, blocks, prices, standing, unit, prompt.tool_loop, explore, deciding.now(), tenant)
    decision: Decision | None = None
    if fallback is None:
        try:
            decision = decide(policy, snapshot.state if snapshot.version else policy.start, situation, receipt.decision_id)
            if deciding.failing:
                deciding.failing.pop(route.name, None)
        except Exception as error:
            fallback = _failed(deciding, route, receipt, error)
    if decision is None:
        decision = _baseline(route, candidates)
    chosen = candidates[decision.chosen]
    model = route.models[chosen.index]
    receipt.policy = policy.name
    receipt.plan, receipt.strategy = chosen.plan.name, chosen.plan.strategy
    receipt.propensity, receipt.explored = decision.propensity, decision.explored
    receipt.choice = Choice(
        decided=_decided(situation, decision, may.excluded, fallback),
        plan=chosen.plan,
        snapshot=snapshot.version,
        feature_version=None if features is None else ",".join([f"{name}:{len(block)}" for name, block in blocks.items()]),
        features=features,
        unit=unit,
        first_turn=first,
        key=key,
        most=may.most[chosen.index],
        longest=least(may.most[chosen.index], prompt.max_tokens),
        reasoning=asked.reasoning or chosen.plan.reasoning,
        took_s=time.perf_counter() - begun,
        model=model.public,
    )
    return _kept_from(route, may.excluded, model) if may.excluded else model


def _strategies(route: VirtualModel, receipt: Receipt, fields: Fields, asked: Options) -> Strategies:
    """What of the request counts for plans with a strategy."""
    barred = None
    if receipt.call is not None and receipt.call.path != DECODED:
        barred = "model"
    elif (fields.n or 1) > 1:
        barred = "n"
    return Strategies(route.loads, asked.strategy, barred)


def _failed(deciding: Deciding, route: VirtualModel, receipt: Receipt, error: Exception) -> str:
    """Tells of a policy or an encoder that failed, and where, but not in its words, which may be those of the prompt; once, until it does
    not fail any more. The reason that is kept."""
    where = _where(error)
    if deciding.failing.get(route.name) != where:
        deciding.failing[route.name] = where
        log.error("deciding for `%s` failed; its baseline serves: %s", route.name, where, extra={"decision_id": receipt.decision_id})
    return "failed"


def _where(error: Exception) -> str:
    """The kind of an error, and the calls that it came out of, the innermost first."""
    frames = reversed(extract_tb(error.__traceback__)[-_MOST_FRAMES:])
    return " < ".join((type(error).__name__, *(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in frames)))


def _kept_from(route: VirtualModel, excluded: Sequence[Excluded], model: RealModel) -> RealModel:
    """The model, for which none stands in that cannot serve the request: it lacks an ability, or is too small, or too dear."""
    unfit = {each.plan for each in excluded if each.reason not in _MAY_STAND_IN}
    if not unfit:
        return model
    barred = {other.public for plan, other in zip(route.plans, route.models, strict=True) if plan.name in unfit}
    return replace(model, stand_ins=tuple(other for other in model.stand_ins if other.public not in barred))


def _candidates(deciding: Deciding, route: VirtualModel, may: Eligible, prompt: Prompt, standing: Standing | None) -> tuple[Candidate, ...]:
    """Those who may serve, with what is expected of them; plans that differ in nothing that counts for that are asked about once."""
    known: dict[tuple[int, int | None], tuple[float, float]] = {}
    stays = None if standing is None else standing.plan
    found = []
    for index in may.plans:
        plan, most = route.plans[index], may.most[index]
        alike = (-1 if plan.name == stays else route.kinds[index], most)
        expected = known.get(alike)
        if expected is None:
            expected = deciding.expectations.of(plan, route.models[index], prompt, most, standing, route.loads[index].candidates)
            known[alike] = expected
        cost, latency = expected
        found.append(Candidate(plan, index, cost, latency))
    return tuple(found)


def _too_late(deciding: Deciding, candidates: Sequence[Candidate], route: VirtualModel, asked: Options) -> bool:
    """Whether a plan might take longer than the request may: then nothing is tried out on it."""
    bound = least(asked.deadline_ms, route.deadline_ms)
    if bound is None:
        return False
    tails = [deciding.expectations.p95(each.plan) for each in candidates]
    return any(tail is not None and tail * 1e3 > bound for tail in tails)


def _place(
    deciding: Deciding, route: VirtualModel, receipt: Receipt, tenant: str, raws: Sequence[msgspec.Raw]
) -> tuple[str | None, Standing | None, str, bool]:
    """The key of the conversation, where it stands, its unit, and whether this is its first turn.

    A key is of one virtual model: plans of another may have the same names. A unit is not.
    """
    if receipt.session is not None:
        unit = deciding.pseudonym(tenant, receipt.session)
        known = deciding.standings.of(key := f"{route.name}/{unit}")
        return key, known[0] if known else None, unit, known is None and not answered(raws)
    if not raws:
        return None, None, receipt.decision_id, True
    now, before = conversation(tenant, raws)
    unit = deciding.pseudonym(tenant, now)
    key = f"{route.name}/{unit}"
    known = deciding.standings.of(f"{route.name}/{deciding.pseudonym(tenant, before)}") if before is not None else None
    if known is None:
        return key, None, unit, before is None
    return key, known[0], known[1], False


def _prices(deciding: Deciding, route: VirtualModel, candidates: Sequence[Candidate], asked: Options) -> Prices:
    """What money and time are worth in quality, for this request."""
    second = deciding.expectations.second
    if asked.preference is None and route.prices is not None:
        return Prices(route.prices.cost, second(route.prices.latency, route.distinct))
    preference = route.preference if asked.preference is None else asked.preference
    dearest = max([each.cost for each in candidates])
    slowest = max([each.latency for each in candidates])
    quality = max(preference.quality, _LEAST_QUALITY)
    return Prices(
        cost=preference.cost / quality / dearest if dearest > 0 else 0.0,
        latency=second(preference.latency / quality / slowest, route.distinct) if slowest > 0 else 0.0,
    )


async def _encoded(algorithm: RoutingPolicy[Any], prompt: Prompt, within_s: float) -> Mapping[str, Vector]:
    """The blocks of features. Those that only a watching policy reads are left out when they are late or fail.

    Raises TimeoutError when others are late.
    """
    until = time.monotonic() + within_s
    encoders = algorithm.encoders
    wanted = needed(algorithm)
    blocks = await _made(wanted, prompt, until)
    if wanted != encoders:
        for each in encoders:
            if each.name not in blocks:
                try:
                    blocks |= await _made((each,), prompt, until)
                except TimeoutError:
                    log.debug("features `%s` of a watching policy are late", each.name)
                except Exception as error:
                    log.warning("features `%s` of a watching policy failed: %s", each.name, _where(error))
        blocks = {each.name: blocks[each.name] for each in encoders if each.name in blocks}
    return blocks


async def _made(encoders: Sequence[Encoder], prompt: Prompt, until: float) -> dict[str, Vector]:
    """Their blocks, those of slow ones from outside of the loop. until: time.monotonic(). Raises TimeoutError."""
    blocks: dict[str, Vector] = {}
    for each in encoders:
        if each.slow:
            async with asyncio.timeout(until - time.monotonic()):
                blocks[each.name] = await asyncio.get_running_loop().run_in_executor(None, each.encode, prompt)
        else:
            blocks[each.name] = each.encode(prompt)
    return blocks


def _packed(blocks: Mapping[str, Vector]) -> bytes | None:
    """All numbers, as they are kept; None: there are none."""
    return b"".join([block.astype("<f4", copy=False).tobytes() for block in blocks.values()]) if blocks else None


def _baseline(route: VirtualModel, candidates: Sequence[Candidate]) -> Decision:
    """The baseline plan, else the first that may serve; certain."""
    chosen = next((at for at, each in enumerate(candidates) if each.plan.name == route.baseline), 0)
    odds = tuple(1.0 if at == chosen else 0.0 for at in range(len(candidates)))
    return Decision(chosen, 1.0, odds, False)


def _decided(situation: Situation, decision: Decision, excluded: tuple[Excluded, ...], fallback: str | None) -> Decided:
    scores = decision.scores
    if scores is None or not scores.estimated:
        nothing = (None,) * len(situation.candidates)
        each = zip(situation.candidates, decision.probabilities, nothing, nothing, nothing, nothing, strict=True)
    else:
        numbers = (scores.quality, scores.low, scores.high, scores.score)
        each = zip(situation.candidates, decision.probabilities, *numbers, strict=True)
    return Decided(
        candidates=tuple([Weighed(c.plan.name, p, q, low, high, score, c.cost, c.latency) for c, p, q, low, high, score in each]),
        prices=situation.prices,
        excluded=excluded,
        standing=situation.standing,
        tool_loop=situation.tool_loop,
        explore=situation.explore,
        now=situation.now,
        shadow=decision.shadow,
        fallback=fallback,
    )
