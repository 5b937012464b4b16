"""What another policy would have been worth, asked of a running gateway: one question at a time, in a thread, for a bounded time.

Between two decisions the thread lets go of the interpreter, so that requests are served meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from gateway.learning.logged import Asked, Read, Record, recorded
from gateway.serving.state import VirtualModel
from gateway.store.lazily import Lazily
from policies.policy import Encoder, Policy, RoutingPolicy
from policies.signals.calibration import Calibration
from policies.values.decision import Odds, Scores
from policies.values.outcome import Observation
from policies.values.situation import Situation

if TYPE_CHECKING:
    from gateway.proof import record as proof
    from policies.offpolicy import log, promotion, replay
else:
    proof = Lazily("gateway.proof.record")
    log, promotion, replay = (Lazily(f"policies.offpolicy.{name}") for name in ("log", "promotion", "replay"))

T = TypeVar("T")

_BATCH: Final = 50
"""Rows between folds, where a policy learns through the log."""


class Busy(Exception):
    """Another question is being answered."""


class TooLong(Exception):
    """It takes longer than it may."""


class Untold(Exception):
    """The log cannot tell; says why."""


class Question(NamedTuple):
    """policy: that is asked about, on the record of this virtual model. asked: which decisions. by_unit: policies that draw once for all
    requests of a unit. state: what it knows, and keeps; None: it begins with nothing and learns through the log. all_turns: later turns of
    conversations, too. clip, switch: see policies/offpolicy/estimators.py."""

    route: VirtualModel
    policy: Policy
    asked: Asked
    by_unit: frozenset[str] = frozenset()
    state: Any = None
    all_turns: bool = False
    clip: float | None = None
    switch: float | None = None


class Evaluator:
    """calibrations: what sources' words are worth, now. within_s: how long one answer may take."""

    def __init__(self, calibrations: Callable[[], Mapping[str, Calibration]], within_s: float = 60.0) -> None:
        self._calibrations = calibrations
        self._within_s = within_s
        self._busy = False

    async def report(self, read: Read, question: Question) -> replay.Report:
        """Raises Busy, TooLong, Untold, StoreError."""
        return await self._answered(read, question, _report)

    async def record(self, read: Read, question: Question, rule: promotion.Rule, current: str) -> promotion.Record:
        """Whether the policy may take the place of that which made these decisions, by the rule. Where the log cannot tell it says to wait.
        Raises Busy, TooLong, StoreError."""

        def work(question: Question, record: Record) -> promotion.Record:
            return _judged(question, record, rule, current)

        return await self._answered(read, question, work)

    async def _answered(self, read: Read, question: Question, work: Callable[[Question, Record], T]) -> T:
        with self._turn():
            until = time.monotonic() + self._within_s
            record = await recorded(read, question.asked, self._calibrations())
            algorithm = _Timed(question.policy.algorithm, until)
            timed = question._replace(policy=msgspec.structs.replace(question.policy, algorithm=algorithm))
            try:
                return await asyncio.to_thread(work, timed, record)
            except (replay.ReplayError, log.LogError) as error:
                raise Untold(str(error)) from None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._busy:
            raise Busy
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


def _logged(question: Question, record: Record) -> tuple[log.Logged, dict[str, int]]:
    reading = proof.rows_of(record, question.route.name, question.by_unit)
    return log.logged(reading.rows, [plan.name for plan in question.route.plans]), reading.left_out


def _report(question: Question, record: Record) -> replay.Report:
    logged, left_out = _logged(question, record)
    report = replay.replay(
        question.policy,
        question.route.plans,
        logged,
        question.state,
        learn=question.state is None,
        batch=_BATCH,
        baseline=question.route.baseline,
        first_only=not question.all_turns,
        clip=question.clip,
        switch=question.switch,
    )
    return replace(report, rows=report.rows + sum(left_out.values()), left_out=left_out | report.left_out)


def _judged(question: Question, record: Record, rule: promotion.Rule, current: str) -> promotion.Record:
    name = question.policy.name
    try:
        logged, _ = _logged(question, record)
        _, rows = replay.judged_rows(question.policy, question.route.plans, logged)
        target = replay.target_probabilities(
            question.policy,
            question.route.plans,
            logged,
            rows,
            question.state,
            learn=question.state is None,
            batch=_BATCH,
            baseline=question.route.baseline,
        )
        evidence = promotion.evidence(logged.at(rows), target, rule.alpha)
    except (replay.ReplayError, log.LogError):
        evidence = promotion.Evidence(requests=0, labels=0, ess=0.0, quality=None)
    return promotion.judged(rule, evidence, name, current, time.time())


class _Timed:
    """A policy that is asked until a moment of time.monotonic() and no longer. Raises TooLong then."""

    def __init__(self, inner: RoutingPolicy[Any], until: float) -> None:
        self._inner = inner
        self._until = until

    @property
    def encoders(self) -> tuple[Encoder, ...]:
        return self._inner.encoders

    def empty(self) -> Any:
        return self._inner.empty()

    def estimate(self, state: Any, situation: Situation) -> Scores:
        time.sleep(0)  # lets others have the interpreter
        if time.monotonic() > self._until:
            raise TooLong
        return self._inner.estimate(state, situation)

    def propensities(self, state: Any, situation: Situation, scores: Scores) -> Odds:
        return self._inner.propensities(state, situation, scores)

    def fold(self, state: Any, observations: Sequence[Observation]) -> Any:
        return self._inner.fold(state, observations)

    def statistics(self, state: Any) -> dict[str, Any]:
        return self._inner.statistics(state)
