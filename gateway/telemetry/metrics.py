"""What is counted of each request, when it has ended: one call, some microseconds, whatever the request was.

receipt --settled--> cells            a cell is looked up by what the receipt holds; labels are made when there is none yet
state   --follow---> what is known    a name that no configuration holds is `other`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic, perf_counter
from types import MappingProxyType
from typing import Final

from gateway.serving.call import Receipt, UpstreamCall
from gateway.serving.feedback import QUALITY, Said
from gateway.serving.state import RealModel, State
from gateway.telemetry import families
from gateway.telemetry.numbers import Cell, Histogram, Labels, Numbers, Value
from gateway.telemetry.pace import Pace
from gateway.wire.usage import Rates, Usage

OTHER: Final = "other"
NONE: Final = "none"
ROUTES: Final = MappingProxyType(
    {
        path: path
        for path in (
            "/v1/audio/speech",
            "/v1/audio/transcriptions",
            "/v1/audio/translations",
            "/v1/chat/completions",
            "/v1/classify",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/images/edits",
            "/v1/images/generations",
            "/v1/images/variations",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/moderations",
            "/v1/pooling",
            "/v1/rerank",
            "/v1/responses",
            "/v1/score",
            "/v1/tokenize",
        )
    }
)
"""The paths that are labels; any other is `other`."""

_CLASSES: Final = (NONE, "1xx", "2xx", "3xx", "4xx", "5xx")
_RETRY_COUNT: Final = b"x-stainless-retry-count"
# Series of a replica that is gone stay for so long, so that what they last counted is read.
_GONE_S: Final = 600.0


class _Ended:
    """The cells of requests that ended alike."""

    __slots__ = ("count", "duration")

    def __init__(self, count: Cell, duration: Histogram) -> None:
        self.count = count
        self.duration = duration


class _Decided:
    """The cells of plans that were drawn alike."""

    __slots__ = ("count", "took")

    def __init__(self, count: Cell, took: Histogram) -> None:
        self.count = count
        self.took = took


class _Calls:
    """The cells of calls to one backend that ended alike."""

    __slots__ = ("count", "duration", "pool")

    def __init__(self, count: Cell, duration: Histogram, pool: Cell) -> None:
        self.count = count
        self.duration = duration
        self.pool = pool


class _Spent:
    """The cells of what a model's tokens came to, and what they cost."""

    __slots__ = ("cached", "cost", "input", "output", "rates")

    def __init__(self, numbers: Numbers, model: str, purpose: str, rates: Rates) -> None:
        self.input = numbers.counter(families.TOKENS, model, "input", purpose)
        self.cached = numbers.counter(families.TOKENS, model, "cached_input", purpose)
        self.output = numbers.counter(families.TOKENS, model, "output", purpose)
        self.cost = numbers.counter(families.COST, model, purpose)
        self.rates = rates

    def add(self, usage: Usage, rates: Rates) -> None:
        cached = min(usage.cached, usage.prompt)
        self.input.value += usage.prompt - cached
        self.cached.value += cached
        self.output.value += usage.completion
        self.cost.value += rates.cost(usage)


class Metrics:
    """The numbers of one process. clock: as receipts have it, seconds; now: a clock that tells how long replicas have been gone."""

    def __init__(self, clock: Callable[[], float] = perf_counter, now: Callable[[], float] = monotonic) -> None:
        self.numbers = Numbers()
        self.pace = Pace(now())
        self._clock = clock
        self._now = now
        self._names: Mapping[str | None, str] = {}
        self._models: Mapping[str, RealModel] = {}
        self._pools: Mapping[str, str] = {}
        self._first: Mapping[tuple[str, str], str] = {}
        self._gone: dict[str, float] = {}
        # Cells by what stands in a receipt. Emptied when a new configuration is taken up, and bounded by what one can hold: names that
        # callers make up become `other` before they are part of a key.
        self._ended: dict[tuple[str, str, str, int, str], _Ended] = {}
        self._calls: dict[tuple[str, str | None, str], _Calls] = {}
        self._spent: dict[tuple[str, str], _Spent] = {}
        self._decided: dict[tuple[str, str, bool], _Decided] = {}
        self._streams: dict[str, tuple[Histogram, Histogram]] = {}
        counter, histogram = self.numbers.counter, self.numbers.histogram
        self._before = histogram(families.OVERHEAD, "before")
        self._after = histogram(families.OVERHEAD, "after")
        self._elsewhere = histogram(families.OVERHEAD, "other")
        self._disconnects = counter(families.DISCONNECTS)
        self._retries = counter(families.RETRIES)

    # -- a request

    def settled(self, receipt: Receipt) -> None:
        """Counts a request that has ended."""
        call, calls, outcome = receipt.call, receipt.calls, receipt.outcome
        served = receipt.served_model
        asked = self._names.get(receipt.requested_model, OTHER)
        route = OTHER if call is None else ROUTES.get(call.path, OTHER)
        error = "" if outcome == "ok" else receipt.code or outcome or "gateway_error"
        key = (route, asked, receipt.strategy, receipt.status // 100, error)
        ended = self._ended.get(key)
        if ended is None:
            ended = self._ended_as(key)
        ended.count.value += 1.0
        ended.duration.observe(self._clock() - receipt.received)
        overhead = receipt.overhead
        if len(calls) == 1:
            only = calls[0]
            self._called(only, receipt)
            if overhead is not None and only.first is not None:
                # What the receipt has waited, but for the call itself, was before it.
                queued = max(0.0, receipt.waited - (only.first - only.started))
                before = min(max(0.0, only.started - receipt.received - queued), overhead)
                self._before.observe(before)
                self._after.observe(overhead - before)
        else:
            if overhead is not None:
                self._elsewhere.observe(overhead)
            if calls:
                self._called_often(calls, receipt)
        if receipt.events and calls and served is not None:
            self._streamed(receipt, served)
        if served is not None and served != asked:
            self._fell_back(receipt, asked, served)
        if receipt.plan is not None:
            drawn = (receipt.policy, receipt.plan, receipt.explored)
            decided = self._decided.get(drawn)
            if decided is None:
                decided = self._decided_as(drawn)
            decided.count.value += 1.0
            if (choice := receipt.choice) is not None:
                decided.took.observe(choice.took_s)
                if choice.decided.fallback is not None:
                    self.numbers.counter(families.UNDECIDED, receipt.policy, choice.decided.fallback).value += 1.0
        for tried in receipt.tried:
            self.numbers.counter(families.CANDIDATES, receipt.strategy, tried.outcome).value += 1.0
        for shown, place in receipt.places:
            self.numbers.counter(families.VERDICTS, receipt.strategy, str(shown), str(place)).value += 1.0
        if outcome == "client_closed":
            self._disconnects.value += 1.0
        if call is not None:
            for name, value in call.headers:
                if name == _RETRY_COUNT:
                    if value.isdigit() and value.strip(b"0"):
                        self._retries.value += 1.0
                    break

    def _called(self, call: UpstreamCall, receipt: Receipt) -> None:
        key = (call.backend, call.outcome, call.purpose)
        cells = self._calls.get(key)
        if cells is None:
            cells = self._calls_as(key)
        cells.count.value += 1.0
        if call.ended is not None:
            cells.duration.observe(call.ended - call.started)
        usage = call.usage
        if usage is not None:
            spent = self._spent.get((call.model, call.purpose))
            if spent is None:
                spent = self._spent_as(call.model, call.purpose)
            spent.add(usage, receipt.rates if call.model == receipt.served_model else spent.rates)
            cells.pool.value += usage.completion

    def _called_often(self, calls: Sequence[UpstreamCall], receipt: Receipt) -> None:
        before: UpstreamCall | None = None
        for call in calls:
            self._called(call, receipt)
            if call.purpose != "served":  # candidates run side by side, which is no hedging
                continue
            if before is not None and before.model == call.model and (before.ended is None or before.ended > call.started):
                won = "true" if call.first is not None and call.outcome != "cancelled" and before.outcome == "cancelled" else "false"
                self.numbers.counter(families.HEDGES, self._model(call.model), won).value += 1.0
            before = call

    def _streamed(self, receipt: Receipt, served: str) -> None:
        call = receipt.calls[-1]
        if call.backend != receipt.backend:  # a hedge that lost
            call = next((each for each in reversed(receipt.calls) if each.backend == receipt.backend), call)
        if call.first is None:
            return
        cells = self._streams.get(served)
        if cells is None:
            label = self._model(served)
            cells = self.numbers.histogram(families.TTFT, label), self.numbers.histogram(families.TPOT, label)
            self._streams[served] = cells
        cells[0].observe(call.first - receipt.received)
        tokens = 0 if call.usage is None else call.usage.completion
        if tokens > 1 and call.ended is not None and call.outcome == "ok":
            cells[1].observe((call.ended - call.first) / (tokens - 1))

    def _fell_back(self, receipt: Receipt, asked: str, served: str) -> None:
        first = asked if asked in self._models else self._first.get((asked, receipt.plan or ""), served)
        if first != served:
            self.numbers.counter(families.FALLBACKS, first, self._model(served)).value += 1.0

    def worked(self, receipt: Receipt) -> None:
        """Counts calls that the gateway made for itself."""
        self._called_often(receipt.calls, receipt)

    # -- feedback

    def heard(self, said: Said) -> None:
        """Counts feedback that was taken."""
        metric = said.verdict or (QUALITY if said.metric == QUALITY else OTHER)  # a verdict is one of few
        self.numbers.counter(families.FEEDBACK, metric).value += 1.0

    # -- cells

    def _ended_as(self, key: tuple[str, str, str, int, str]) -> _Ended:
        route, asked, strategy, status, error = key
        status_class = _CLASSES[status] if 0 <= status < len(_CLASSES) else OTHER
        count = self.numbers.counter(families.REQUESTS, route, asked, strategy, status_class, error)
        found = self._ended[key] = _Ended(count, self.numbers.histogram(families.DURATION, route, asked))
        return found

    def _calls_as(self, key: tuple[str, str | None, str]) -> _Calls:
        name, outcome, purpose = key
        backend = name if name in self._pools or name in self._gone else OTHER
        count = self.numbers.counter(families.UPSTREAM, backend, outcome or "cancelled", purpose)
        duration = self.numbers.histogram(families.UPSTREAM_DURATION, backend)
        found = self._calls[key] = _Calls(count, duration, self.pace.of(self._pools.get(name, OTHER)))
        return found

    def _spent_as(self, model: str, purpose: str) -> _Spent:
        known = self._models.get(model)
        rates = Rates() if known is None else known.rates
        found = self._spent[model, purpose] = _Spent(self.numbers, self._model(model), purpose, rates)
        return found

    def _decided_as(self, drawn: tuple[str, str, bool]) -> _Decided:
        policy, plan, explored = drawn
        count = self.numbers.counter(families.DECISIONS, policy, plan, "true" if explored else "false")
        found = self._decided[drawn] = _Decided(count, self.numbers.histogram(families.DECISION, policy))
        return found

    def _model(self, public: str) -> str:
        return public if public in self._models else OTHER

    # -- what is known

    def follow(self, state: State) -> None:
        """Takes up the names of a configuration. Replicas that are not in it any more keep their series for ten minutes."""
        names: dict[str | None, str] = {None: NONE}
        first: dict[tuple[str, str], str] = {}
        models: dict[str, RealModel] = {}
        for name, route in state.names.items():
            if isinstance(route, RealModel):
                names[name] = route.public
                models[route.public] = route
            else:
                names[name] = route.name
                first.update({(name, plan.name): model.public for plan, model in zip(route.plans, route.models, strict=True)})
        pools = {name: _pool(name, state) for name in state.backends}
        now = self._now()
        for name in self._pools.keys() - pools.keys():
            self._gone[name] = now
        for name in pools.keys() & self._gone.keys():
            del self._gone[name]
        self._names, self._models, self._pools, self._first = names, models, pools, first
        self.pace.keep(frozenset(pools.values()))
        self._forget_cells()

    def tick(self) -> None:
        """A second has passed."""
        now = self._now()
        self.pace.tick(now)
        over = {name for name, since in self._gone.items() if now - since >= _GONE_S}
        if over:
            for name in over:
                del self._gone[name]
            for family in (families.UPSTREAM, families.UPSTREAM_DURATION):
                self.numbers.forget(family, [labels for labels in self.numbers.labels(family) if labels[0] in over])
            self._forget_cells()

    def _forget_cells(self) -> None:
        for cells in (self._ended, self._calls, self._spent, self._decided, self._streams):
            cells.clear()

    def snapshot(self) -> dict[str, dict[Labels, Value]]:
        """All numbers as they are now; the caller's to add to."""
        found = self.numbers.snapshot()
        found[families.DECODE.name] = {(pool,): rate for pool, rate in self.pace.per_second(self._now()).items() if pool != OTHER}
        return found


def _pool(replica: str, state: State) -> str:
    """The configured backend that a replica belongs to: of a discovered one, NAME/REPLICA; NAME itself may hold slashes."""
    configured = state.config.backends
    name = replica
    while name not in configured and "/" in name:
        name = name.rpartition("/")[0]
    return name if name in configured else OTHER
