"""What a plan is expected to take for a request, in USD and seconds, from what calls took so far (models/latency.py, output_length.py).

    cost       cached prompt x its rate + the rest of the prompt x the input rate + expected answer x the output rate
    latency    of the replica that has the least to do, at its present load
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
from models.latency import Latency
from models.output_length import OutputLength
from models.quantile import Quantile
from policies.pricing.load import latency_price, utilisation
from policies.values.plan import Plan
from policies.values.prompt import Prompt
from policies.values.situation import Standing

_ENOUGH: Final = 30
# Calls that have ended are learnt from when a decision next asks, so that relayed requests do not pay for it; of more, the newest.
_KEPT: Final = 64
_REPLICAS: Final = 4_096


class _Answers:
    """What is known of the answers of one model, in one reasoning mode, decoded in one way: their lengths, all that is sampled for one
    together; how many calls that takes; and what requests took."""

    __slots__ = ("calls", "length", "took_s")

    def __init__(self) -> None:
        self.length = OutputLength()
        self.calls = OutputLength()
        self.took_s = Quantile(0.95)


class Expectations:
    """What is known of costs and times in this process. Replicas come and go: of too many, those first seen are forgotten."""

    def __init__(self) -> None:
        self._calls: deque[UpstreamCall] = deque(maxlen=_KEPT)
        self._latencies: dict[tuple[str, str], Latency] = {}
        self._answers: dict[tuple[str, str | None, str], _Answers] = {}
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
        if candidates == 1:
            # Until enough is known of a plan, its answers are taken to be as long as anybody's, or it would seem dear for being new.
            answer = (known.length if known.length.count >= _ENOUGH else self._usual).expected(bound)
            written, read = answer, 0.0
        else:
            calls = known.calls.expected(candidates) if known.calls.count >= _ENOUGH else float(candidates)
            answer = self._usual.expected(bound)
            written = known.length.expected(None) if known.length.count >= _ENOUGH else calls * answer
            read = (calls - 1.0) * prompt.tokens * rates.cached_input  # the first has it cached for the others
        cost = ((prompt.tokens - cached) * rates.input + cached * rates.cached_input + read + written * rates.output) / 1e6
        serving = [each for each in model.replicas.backends if each.serves]
        if not serving:
            return cost, 0.0
        backend = serving[0] if len(serving) == 1 else min(serving, key=_load)
        waiting = int(backend.queued) + (model.admission.waiting if model.admission is not None else 0)
        return cost, self._latency(backend.name, model.public).predict(backend.in_flight, waiting, prompt.tokens, cached, answer)

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
            answers.calls.observe(len(receipt.tried), None)
        elif choice.model in (None, receipt.served_model):  # the answers of who stood in tell nothing of the plan's
            answers.length.observe(receipt.usage.completion, choice.longest)
            self._usual.observe(receipt.usage.completion, choice.longest)
        answers.took_s.observe(perf_counter() - receipt.received)

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


def _load(backend: Backend) -> float:
    return (backend.in_flight + backend.queued) / backend.weight
