from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from gateway.pool.breaker import Breaker, Fault, Ticket, fault_of


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(clock)


def test_too_many_requests_is_a_fault() -> None:
    assert fault_of(429) == "rate_limit"


@pytest.mark.parametrize("status", [500, 502, 503, 504, 507, 599])
def test_a_server_error_is_a_fault(status: int) -> None:
    assert fault_of(status) == "status"


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 403, 404, 405, 408, 409, 413, 422, 451, 501])
def test_what_the_caller_got_wrong_is_no_fault(status: int) -> None:
    assert fault_of(status) is None


def test_an_overflow_does_not_cool_down_a_healthy_route(breaker: Breaker) -> None:
    """A prompt that is too long (400) is the caller's: the short one after it goes through, and so after a hundred of them."""
    for _ in range(100):
        ticket = breaker.begin()
        assert fault_of(400) is None
        breaker.abandoned(ticket)

    assert breaker.state == "closed"
    assert breaker.admits()


@pytest.mark.parametrize("fault", ["connect", "rate_limit"])
def test_some_faults_trip_at_once(breaker: Breaker, fault: Fault) -> None:
    breaker.faulted(breaker.begin(), fault)

    assert (breaker.state, breaker.admits(), breaker.wait_s) == ("open", False, 1.0)


@pytest.mark.parametrize("fault", ["reset", "timeout", "status"])
def test_other_faults_trip_when_three_come_in_a_row(breaker: Breaker, fault: Fault) -> None:
    for _ in range(2):
        breaker.faulted(breaker.begin(), fault)
    breaker.succeeded(breaker.begin())
    for _ in range(2):
        breaker.faulted(breaker.begin(), fault)
    assert breaker.state == "closed"

    breaker.faulted(breaker.begin(), fault)

    assert breaker.state == "open"


def test_calls_without_a_verdict_do_not_break_the_row(breaker: Breaker) -> None:
    for _ in range(3):
        breaker.abandoned(breaker.begin())
        breaker.faulted(breaker.begin(), "status")

    assert breaker.state == "open"


@pytest.mark.parametrize(("first", "second"), [(1.0, 30.0), (30.0, 1.0)])
def test_of_two_deadlines_the_later_counts(breaker: Breaker, clock: Clock, first: float, second: float) -> None:
    calls = [breaker.begin(), breaker.begin()]

    breaker.faulted(calls[0], "rate_limit", first)
    breaker.faulted(calls[1], "rate_limit", second)

    assert breaker.wait_s == 30.0
    clock.time += 29.9
    assert not breaker.admits()
    clock.time += 0.1
    assert breaker.admits()


def test_the_trial_decides(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    assert breaker.state == "half_open"

    trial = breaker.begin()

    assert not breaker.admits()
    assert breaker.state == "half_open"
    breaker.succeeded(trial)
    assert breaker.state == "closed"


def test_each_failed_trial_doubles_the_pause_up_to_the_longest(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    pauses = [breaker.wait_s]
    for _ in range(6):
        clock.time += breaker.wait_s
        breaker.faulted(breaker.begin(), "connect")
        pauses.append(breaker.wait_s)

    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_backend_that_is_down_for_days_stays_at_the_longest_pause(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    for _ in range(3_000):
        clock.time += breaker.wait_s
        breaker.faulted(breaker.begin(), "connect")

    assert breaker.wait_s == pytest.approx(30.0)


def test_after_a_recovery_the_pause_starts_small_again(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    for _ in range(4):
        clock.time += breaker.wait_s
        breaker.faulted(breaker.begin(), "connect")
    clock.time += breaker.wait_s
    breaker.succeeded(breaker.begin())

    breaker.faulted(breaker.begin(), "connect")

    assert breaker.wait_s == 1.0


def test_a_trial_that_is_abandoned_makes_way_for_another(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    left = breaker.begin()
    assert not breaker.admits()

    breaker.abandoned(left)

    assert breaker.state == "half_open"
    second = breaker.begin()
    breaker.abandoned(left)  # told again, late: the second trial keeps its place
    assert not breaker.admits()
    breaker.succeeded(second)
    assert breaker.state == "closed"


def test_a_success_of_a_call_begun_before_the_trip_does_not_close_it(breaker: Breaker, clock: Clock) -> None:
    before = breaker.begin()
    breaker.faulted(breaker.begin(), "rate_limit", 30.0)

    breaker.succeeded(before)
    assert breaker.wait_s == 30.0

    clock.time += 30.0
    breaker.begin()
    breaker.succeeded(before)
    assert breaker.state == "half_open"


def test_time_outs_of_calls_begun_before_the_trip_do_not_keep_out_a_backend_that_has_come_back(breaker: Breaker, clock: Clock) -> None:
    stragglers = [breaker.begin() for _ in range(10)]
    breaker.faulted(breaker.begin(), "connect")
    for straggler in stragglers[:5]:
        breaker.faulted(straggler, "timeout")
    assert breaker.wait_s == 1.0
    clock.time += 1.0
    breaker.succeeded(breaker.begin())

    for straggler in stragglers[5:]:
        breaker.faulted(straggler, "timeout")

    assert breaker.state == "closed"


def test_successes_of_calls_begun_before_the_trip_do_not_break_a_row_after_it(breaker: Breaker, clock: Clock) -> None:
    stragglers = [breaker.begin() for _ in range(3)]
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    breaker.succeeded(breaker.begin())

    for straggler in stragglers:
        breaker.faulted(breaker.begin(), "status")
        breaker.succeeded(straggler)

    assert breaker.state == "open"


def test_a_retry_after_counts_whenever_the_call_began(breaker: Breaker, clock: Clock) -> None:
    straggler = breaker.begin()
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    breaker.succeeded(breaker.begin())

    breaker.faulted(straggler, "rate_limit", 20.0)

    assert breaker.wait_s == 20.0


def test_a_trial_does_not_end_a_pause_that_was_asked_for_after_it_began(breaker: Breaker, clock: Clock) -> None:
    straggler = breaker.begin()
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    trial = breaker.begin()
    breaker.faulted(straggler, "rate_limit", 20.0)

    breaker.succeeded(trial)

    assert breaker.wait_s == 20.0
    clock.time += 20.0
    assert breaker.admits()


def test_when_all_cool_one_may_be_tried_early(breaker: Breaker) -> None:
    breaker.faulted(breaker.begin(), "rate_limit", 3_000.0)
    assert not breaker.admits()
    assert breaker.admits(early=True)

    trial = breaker.begin(early=True)
    assert not breaker.admits(early=True)
    breaker.succeeded(trial)

    assert breaker.state == "closed"
    breaker.faulted(breaker.begin(), "connect")
    assert breaker.wait_s == 1.0  # the pause that the trial ended is over


def test_who_is_not_admitted_cannot_begin(breaker: Breaker) -> None:
    breaker.faulted(breaker.begin(), "connect")

    with pytest.raises(RuntimeError):
        breaker.begin()


def test_a_trial_that_breaks_off_after_its_first_byte_is_a_fault_like_others(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    trial = breaker.begin()
    breaker.succeeded(trial)

    breaker.faulted(trial, "reset")
    for _ in range(2):
        breaker.faulted(breaker.begin(), "reset")

    assert breaker.state == "open"


@pytest.mark.parametrize(
    ("asked", "wait"), [(0.0, 0.0), (-5.0, 0.0), (7.5, 7.5), (86_400.0, 3_600.0), (math.inf, 3_600.0), (math.nan, 1.0), (None, 1.0)]
)
def test_what_a_backend_asks_for_is_kept_within_reason(breaker: Breaker, asked: float | None, wait: float) -> None:
    breaker.faulted(breaker.begin(), "rate_limit", asked)

    assert breaker.wait_s == wait


@dataclass(frozen=True, eq=False)
class Sent:
    """A call as the model knows it: how many trips there had been, and for a trial the last word of the backend that it had heard."""

    ticket: Ticket
    trips: int
    words: int | None


class Outages(RuleBasedStateMachine):
    """A breaker beside its rules told anew: the words that the backend has given ("not before") are kept in a list, and it is out of use
    until all of them have passed and a trial that had heard all of them has succeeded."""

    calls = Bundle("calls")

    @initialize(trip_after=st.integers(1, 4))
    def start(self, trip_after: int) -> None:
        self.clock = Clock()
        self.breaker = Breaker(self.clock, trip_after=trip_after, first_s=1.0, longest_s=8.0)
        self.trip_after = trip_after
        self.words: list[float] = []
        self.failed_trials = 0
        self.row = 0
        self.trips = 0
        self.trial: Sent | None = None
        self.deadline = -math.inf

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.time += seconds

    @precondition(lambda self: self.may_go(early=False))
    @rule(target=calls)
    def begin(self) -> Sent:
        return self._sent(self.breaker.begin())

    @precondition(lambda self: self.may_go(early=True))
    @rule(target=calls)
    def begin_early(self) -> Sent:
        return self._sent(self.breaker.begin(early=True))

    def _sent(self, ticket: Ticket) -> Sent:
        sent = Sent(ticket, self.trips, len(self.words) if self.words else None)
        if self.words:
            self.trial = sent
        return sent

    @rule(call=consumes(calls))
    def succeeded(self, call: Sent) -> None:
        self.breaker.succeeded(call.ticket)
        if call is self.trial:
            self.trial = None
            if max(self.words) == max(self.words[: call.words]):
                self.words, self.row, self.failed_trials = [], 0, 0
        elif not self.words and call.trips == self.trips and call.words is None:
            self.row = 0

    @rule(
        call=consumes(calls),
        fault=st.sampled_from(["connect", "reset", "timeout", "status", "rate_limit"]),
        asked=st.sampled_from([None, None, 0.0, 1.0, 30.0]),
    )
    def faulted(self, call: Sent, fault: Fault, asked: float | None) -> None:
        self.breaker.faulted(call.ticket, fault, asked)
        is_word = fault == "rate_limit" or asked is not None
        if call is self.trial:
            self.trial = None
            self.failed_trials += 1
            self._word(asked)
        elif is_word:
            self.row += not self.words
            self._word(asked)
        elif not self.words and call.trips == self.trips and call.words is None:
            self.row += 1
            if fault == "connect" or self.row >= self.trip_after:
                self._word(asked)

    def _word(self, asked: float | None) -> None:
        self.trips += not self.words
        self.words.append(self.clock.time + (min(8.0, 2.0**self.failed_trials) if asked is None else asked))

    @rule(call=consumes(calls))
    def abandoned(self, call: Sent) -> None:
        self.breaker.abandoned(call.ticket)
        if call is self.trial:
            self.trial = None

    def may_go(self, *, early: bool) -> bool:
        if not hasattr(self, "words"):
            return False
        return not self.words or (self.trial is None and (early or self.clock.time >= max(self.words)))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "words"):
            return
        assert self.breaker.admits() == self.may_go(early=False)
        assert self.breaker.admits(early=True) == self.may_go(early=True)
        assert self.breaker.wait_s == max(0.0, *(word - self.clock.time for word in self.words), 0.0)
        state = "closed" if not self.words else "open" if self.clock.time < max(self.words) else "half_open"
        assert self.breaker.state == state

    @invariant()
    def deadlines_are_only_extended(self) -> None:
        if not hasattr(self, "words"):
            return
        deadline = self.clock.time + self.breaker.wait_s if self.breaker.state == "open" else -math.inf
        if self.breaker.state == "open":
            assert deadline >= self.deadline or self.breaker.wait_s == 0
        self.deadline = deadline


TestOutages = Outages.TestCase
TestOutages.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
