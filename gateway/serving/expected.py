"""What a plan is expected to take for a request, in USD and seconds, from what calls took so far (models/latency.py, output_length.py).

    cost       cached prompt x its rate + the rest of the prompt x the input rate + expected answer x the output rate
    latency    of the replica that has the least to do, at its present load
    strategy   how many answers it takes; what all calls cost, over these answers; and how long it all takes, over one of them: as the
               plan's requests did, else in proportion as those of the same choice among other numbers of answers (models/response.py)
               or of another model, else all answers of the worst case at once, and nothing beside
    p95        of what requests of the plan have taken
    load       how much more a second is worth than on an idle pool (policies/pricing/load.py)

A process learns this by itself, from its own calls; it is what a decision is made from, so it is kept with the decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Final

from gateway.pool.backend import Backend
from gateway.serving.call import Receipt, UpstreamCall
from gateway.serving.eligible import least
from gateway.serving.state import RealModel
from gateway.wire.usage import Rates, Usage
from models.latency import Latency
from models.output_length import OutputLength
from models.quantile import Quantile
from policies.decoding.registry import SINGLE
from policies.pricing.load import latency_price, utilisation
from policies.values.plan import Plan
from policies.values.prompt import Prompt
from policies.values.situation import Standing

_ENOUGH: Final = 30
# Calls that have ended are learnt from when a decision next asks, so that relayed requests do not pay for it; of more, the newest.
_KEPT: Final = 64
_REPLICAS: Final = 4_096


_Key = tuple[str, str | None, str] | str


class _Answers:
    """What is known of the answers of one model, in one reasoning mode, decoded in one way: their lengths, all that is sampled for one
    together; and what requests took."""

    __slots__ = ("length", "took_s")

    def __init__(self) -> None:
        self.length = OutputLength()
        self.took_s = Quantile(0.95)


class _Shares:
    """What requests with a strategy take. answers: over the tries of its response curve. cost: over that of these answers by themselves.
    time: over that of one answer. Means, in which a request counts half after some 70 more. count: requests so far."""

    __slots__ = ("answers", "cost", "count", "time")

    def __init__(self) -> None:
        self.count = 0
        self.answers = self.cost = self.time = 0.0

    def observe(self, answers: float, cost: float, time: float) -> None:
        self.count += 1
        rate = max(0.01, 1.0 / self.count)
        self.answers += rate * (answers - self.answers)
        self.cost += rate * (cost - self.cost)
        self.time += rate * (time - self.time)


class Expectations:
    """What is known of costs and times in this process. Replicas come and go: of too many, those first seen are forgotten."""

    def __init__(self) -> None:
        self._calls: deque[UpstreamCall] = deque(maxlen=_KEPT)
        self._latencies: dict[tuple[str, str], Latency] = {}
        self._answers: dict[tuple[str, str | None, str], _Answers] = {}
        self._shares: dict[_Key, _Shares] = {}
        self._usual = OutputLength()

    def of(
        self, plan: Plan, model: RealModel, prompt: Prompt, most: int | None, standing: Standing | None, candidates: int = 1
    ) -> tuple[float, float]:
        """USD and seconds. most: tokens that each answer may have. standing: of the conversation, which its plan's replica has cached.
        candidates: of the plan's strategy, in the worst case, which is expected until it is known how many there are."""
        while self._calls:
            self._learn(self._calls.popleft())
        cached = min(standing.tokens, prompt.tokens) if standing is not None and standing.plan == plan.name else 0
        known = self._answers_of(plan)
        bound = least(most, prompt.max_tokens)
        rates = model.rates
        answers, dearer, longer = float(candidates), 1.0, 1.0
        if candidates == 1:
            # Until enough is known of a plan, its answers are taken to be as long as anybody's, or it would seem dear for being new.
            answer = written = (known.length if known.length.count >= _ENOUGH else self._usual).expected(bound)
        else:
            single = self._answers.get((plan.model, plan.reasoning, SINGLE))
            answer = (single.length if single is not None and single.length.count >= _ENOUGH else self._usual).expected(bound)
            shares = self._shares_of(plan)
            if shares is not None:
                answers, dearer, longer = min(shares.answers * _tries(plan), answers), shares.cost, shares.time
            written = known.length.expected(None) if known.length.count >= _ENOUGH else answers * answer
        cost = dearer * _cost(rates, prompt.tokens, cached, answers, written)
        serving = [each for each in model.replicas.backends if each.serves]
        if not serving:
            return cost, 0.0
        backend = serving[0] if len(serving) == 1 else min(serving, key=_load)
        waiting = int(backend.queued) + (model.admission.waiting if model.admission is not None else 0)
        one = self._latency(backend.name, model.public).predict(backend.in_flight, waiting, prompt.tokens, cached, answer)
        return cost, longer * one

    def p95(self, plan: Plan) -> float | None:
        """Seconds that 95 % of the plan's requests took no longer than; None: too few were seen."""
        return self._answers_of(plan).took_s.value()

    def second(self, base: float, models: Sequence[RealModel]) -> float:
        """The price of a second, which on an idle pool is `base`, at the load that these models, each once, have now."""
        if not base:
            return base
        running = waiting = places = 0
        for model in models:
            if model.admission is not None:
                running, waiting, places = (
                    running + model.admission.running,
                    waiting + model.admission.waiting,
                    places + model.admission.slots,
                )
                continue
            for backend in model.replicas.backends:
                queued = int(backend.queued)
                running, waiting = running + backend.in_flight, waiting + queued
                known = backend.spec.slots if backend.spec.launch is not None else 0
                # Of an engine whose places are not known: when something waits in it they are all taken, else there are enough.
                places += known or (backend.in_flight if queued else 2 * backend.in_flight)
        return latency_price(base, utilisation(running, waiting, places)) if running else base

    def ended(self, receipt: Receipt) -> None:
        """A request has ended: what its calls took is learnt from, and what it took itself, if a plan ran it."""
        self._calls += receipt.calls
        choice = receipt.choice
        if choice is None or receipt.outcome != "ok" or receipt.usage is None:
            return
        answers = self._answers_of(choice.plan)
        if receipt.tried:
            answers.length.observe(receipt.usage.completion, None)
            self._observe(choice.plan, choice.model or choice.plan.model, receipt, receipt.usage)
        elif choice.model in (None, receipt.served_model):  # the answers of who stood in tell nothing of the plan's
            answers.length.observe(receipt.usage.completion, choice.longest)
            self._usual.observe(receipt.usage.completion, choice.longest)
        answers.took_s.observe(perf_counter() - receipt.received)

    def _observe(self, plan: Plan, model: str, receipt: Receipt, usage: Usage) -> None:
        """A request with a strategy has ended. What another model wrote, a judge or who stood in, is beside the answers."""
        own = [each for each in receipt.calls if each.purpose == "candidate" and each.model == model]
        took_s = [each.ended - each.started for each in own if each.ended is not None and each.outcome == "ok"]
        if not took_s:
            return
        alone = _cost(own[0].rates, usage.prompt, usage.cached, len(receipt.tried), usage.completion)
        one, took = sum(took_s) / len(took_s), perf_counter() - receipt.received
        cost, time = receipt.cost / alone if alone > 0 else 1.0, took / one if one > 0 else 1.0
        for key in _keys(plan):
            known = self._shares.get(key)
            if known is None:
                known = self._shares[key] = _Shares()
            known.observe(len(receipt.tried) / _tries(plan), cost, time)

    def _shares_of(self, plan: Plan) -> _Shares | None:
        """The plan's own, or those of its kind; None: too little is known of either."""
        found = [known for key in _keys(plan) if (known := self._shares.get(key)) is not None and known.count >= _ENOUGH]
        return found[0] if found else None

    def _learn(self, call: UpstreamCall) -> None:
        usage = call.usage
        if call.outcome != "ok" or usage is None or call.ended is None:
            return
        total = call.ended - call.started
        first = call.first - call.started if call.streamed and call.first is not None else None
        self._latency(call.backend, call.model).observe(call.others, usage.prompt, usage.cached, first, usage.completion, total)

    def _latency(self, backend: str, model: str) -> Latency:
        known = self._latencies.get((backend, model))
        if known is None:
            if len(self._latencies) >= _REPLICAS:
                del self._latencies[next(iter(self._latencies))]
            known = self._latencies[backend, model] = Latency()
        return known

    def _answers_of(self, plan: Plan) -> _Answers:
        way = (plan.model, plan.reasoning, plan.strategy)
        known = self._answers.get(way)
        if known is None:
            known = self._answers[way] = _Answers()
        return known


def _keys(plan: Plan) -> Sequence[_Key]:
    """Under which a plan's shares are known: its own, and the kind of its choice among answers."""
    own = (plan.model, plan.reasoning, plan.strategy)
    return (own,) if plan.response is None else (own, plan.response.kind)


def _tries(plan: Plan) -> int:
    return 1 if plan.response is None else plan.response.tries


def _cost(rates: Rates, prompt: float, cached: float, answers: float, written: float) -> float:
    """USD of so many answers to one prompt; the first has it cached for the others."""
    read = (prompt - cached) * rates.input + (cached + (answers - 1.0) * prompt) * rates.cached_input
    return (read + written * rates.output) / 1e6


def _load(backend: Backend) -> float:
    return (backend.in_flight + backend.queued) / backend.weight
