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


def test_a_pause_that_was_asked_for_is_not_cut_short_by_a_longer_one_of_ours(clock: Clock) -> None:
    breaker = Breaker(clock, first_s=60, longest_s=60)
    breaker.faulted(breaker.begin(), "rate_limit", 10.0)
    assert breaker.asked

    breaker.faulted(breaker.begin(early=True), "status")

    assert breaker.asked, "ten seconds were asked for"
    clock.time += 11.0
    assert (breaker.asked, breaker.state) == (False, "open")


def test_who_was_chosen_as_the_trial_when_another_became_it_goes_without_a_say(breaker: Breaker) -> None:
    breaker.faulted(breaker.begin(), "timeout", 0.5)
    trial = breaker.begin(early=True)
    second = breaker.begin(early=True)

    breaker.faulted(second, "connect")
    assert breaker.wait_s == 0.5
    breaker.succeeded(second)
    assert breaker.state == "open"
    breaker.succeeded(trial)
    assert breaker.state == "closed"


# A share of faults


def outcomes(breaker: Breaker, faults: str) -> None:
    """One call after another: x is a fault, anything else a success."""
    for each in faults:
        if each == "x":
            breaker.faulted(breaker.begin(), "status")
        else:
            breaker.succeeded(breaker.begin())


def test_a_backend_that_fails_every_other_call_trips(breaker: Breaker) -> None:
    outcomes(breaker, ".x.x.x.x.")
    assert breaker.state == "closed", "nine calls tell little"

    outcomes(breaker, "x")

    assert (breaker.state, breaker.wait_s) == ("open", 1.0)


def test_a_share_below_that_does_not(breaker: Breaker) -> None:
    outcomes(breaker, "..x" * 100)

    assert breaker.state == "closed"


def test_what_lies_further_back_than_the_window_counts_no_more(clock: Clock) -> None:
    breaker = Breaker(clock, trip_after=100, trip_share=0.5, window=4, min_calls=4)
    outcomes(breaker, "x......")
    assert breaker.state == "closed"

    outcomes(breaker, "x.x")

    assert breaker.state == "open", "two of the last four"


def test_a_long_healthy_past_does_not_shield_a_backend_that_begins_to_fail(breaker: Breaker) -> None:
    """After a thousand good calls the tenth fault in twenty trips, as after twenty of them."""
    outcomes(breaker, "." * 1_000 + "x." * 9)
    assert breaker.state == "closed"

    outcomes(breaker, "x")

    assert breaker.state == "open"


def test_fewer_calls_than_the_least_are_enough_when_the_window_holds_no_more(clock: Clock) -> None:
    breaker = Breaker(clock, trip_after=100, window=2, min_calls=10)

    outcomes(breaker, ".x")

    assert breaker.state == "open"


def test_calls_without_a_verdict_are_no_part_of_the_share(breaker: Breaker) -> None:
    for _ in range(5):
        outcomes(breaker, "x.")
        for _ in range(10):
            breaker.abandoned(breaker.begin())

    assert breaker.state == "closed", "the tenth of ten was no fault"
    outcomes(breaker, "x")
    assert breaker.state == "open"


def test_after_a_recovery_the_window_is_empty(breaker: Breaker, clock: Clock) -> None:
    outcomes(breaker, ".x.x.x.x.x")
    clock.time += 1.0
    breaker.succeeded(breaker.begin())

    outcomes(breaker, "x.x.")

    assert breaker.state == "closed"


# Probes


def test_a_probe_that_cannot_connect_keeps_calls_away_before_one_has_paid_for_it(breaker: Breaker, clock: Clock) -> None:
    breaker.probing(6.0)
    breaker.unreachable(2.0)
    assert (breaker.state, breaker.wait_s) == ("open", 2.0)
    assert not breaker.admits()
    assert not breaker.admits(early=True)

    clock.time += 1.0
    breaker.probing(6.0)
    clock.time += 5.0
    assert not breaker.admits(early=True), "the next probe is under way"
    breaker.reachable()

    assert (breaker.state, breaker.wait_s) == ("closed", 0.0)
    assert breaker.admits()


def test_the_word_of_a_probe_that_stopped_asking_does_not_hold_for_ever(breaker: Breaker, clock: Clock) -> None:
    breaker.unreachable(7.0)
    clock.time += 7.0

    assert (breaker.state, breaker.admits()) == ("closed", True)


def test_a_dead_port_is_tried_by_probes_and_not_by_a_call(breaker: Breaker, clock: Clock) -> None:
    """The pause after a call could not connect is 1 s; probes each second say that it still cannot be done."""
    breaker.faulted(breaker.begin(), "connect")
    for _ in range(100):
        breaker.probing(6.0)
        breaker.unreachable(2.0)
        for _ in range(4):
            assert not breaker.admits()
            assert not breaker.admits(early=True)
            clock.time += 0.25
    breaker.probing(6.0)
    breaker.reachable()

    assert breaker.state == "closed", "its pause is long over, and a connection is all that was wanting"


def test_a_long_trial_keeps_nobody_out_once_a_probe_has_connected(breaker: Breaker, clock: Clock) -> None:
    """Whole answers may take minutes."""
    breaker.faulted(breaker.begin(), "connect")
    clock.time += 1.0
    trial = breaker.begin()
    assert not breaker.admits()
    breaker.probing(6.0)
    breaker.reachable()
    assert breaker.admits()

    breaker.succeeded(trial)  # it has had its say
    assert breaker.state == "closed"


def test_a_probe_ends_neither_a_pause_nor_what_calls_found_wrong(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    breaker.reachable()
    assert breaker.state == "open"
    clock.time += 1.0
    breaker.faulted(breaker.begin(), "timeout")
    clock.time += 2.0
    breaker.reachable()
    assert breaker.state == "half_open", "it connects, but calls time out there"


def test_while_the_first_probe_after_a_failed_connection_is_under_way_a_call_waits_unless_there_is_no_other_way(
    breaker: Breaker, clock: Clock
) -> None:
    """A host that is gone answers nothing: connecting takes its five seconds, and the pause is only one."""
    breaker.faulted(breaker.begin(), "connect")
    breaker.probing(6.0)
    clock.time += 2.0
    assert not breaker.admits()
    assert breaker.admits(early=True)

    clock.time += 3.0
    breaker.unreachable(7.0)

    assert not breaker.admits(early=True)


def test_a_word_that_is_overdue_says_nothing_of_the_next_outage(breaker: Breaker, clock: Clock) -> None:
    breaker.unreachable(7.0)
    clock.time += 100.0
    breaker.faulted(breaker.begin(), "connect")

    breaker.probing(6.0)

    assert breaker.admits(early=True)


@pytest.mark.parametrize("fault", ["reset", "timeout", "status"])
def test_after_another_fault_no_call_waits_for_a_probe(breaker: Breaker, clock: Clock, fault: Fault) -> None:
    for _ in range(3):
        breaker.faulted(breaker.begin(), fault)
    breaker.probing(6.0)
    clock.time += 1.0

    assert breaker.admits()


def test_a_probe_that_connects_ends_no_pause(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "rate_limit", 30.0)
    breaker.reachable()
    assert breaker.wait_s == 30.0
    assert breaker.asked

    breaker.unreachable(7.0)
    clock.time += 1.0
    breaker.reachable()

    assert (breaker.state, breaker.wait_s) == ("open", 29.0)


def test_a_call_that_succeeded_meanwhile_refutes_a_probe_that_could_not_connect(breaker: Breaker) -> None:
    """A busy backend may have no room for one more connection, and serve those that it has."""
    breaker.probing(6.0)
    breaker.succeeded(breaker.begin())
    breaker.unreachable(7.0)
    assert breaker.state == "closed"

    breaker.probing(6.0)
    breaker.unreachable(7.0)

    assert breaker.state == "open", "this time none has"


def test_a_trial_that_succeeds_overrides_probes(breaker: Breaker, clock: Clock) -> None:
    breaker.faulted(breaker.begin(), "connect")
    trial = breaker.begin(early=True)
    breaker.probing(6.0)
    breaker.unreachable(7.0)

    breaker.succeeded(trial)

    assert (breaker.state, breaker.admits()) == ("closed", True)
    breaker.faulted(breaker.begin(), "timeout", 0.5)
    assert breaker.wait_s == 0.5


def test_trips_of_which_a_probe_may_tell_more_ask_for_one(breaker: Breaker, clock: Clock) -> None:
    asked = []
    breaker.on_trip = lambda: asked.append(clock.time)
    breaker.faulted(breaker.begin(), "rate_limit", 0.0)
    breaker.succeeded(breaker.begin())
    assert not asked

    breaker.faulted(breaker.begin(), "connect")

    assert asked == [clock.time]
    breaker.unreachable(7.0)
    assert len(asked) == 1


@dataclass(frozen=True, eq=False)
class Sent:
    """A call as the model knows it: how many trips there had been, and for a trial the last word of the backend that it had heard.

    trips -1: it was chosen as the trial when another had become it.
    """

    ticket: Ticket
    trips: int
    words: int | None


class Outages(RuleBasedStateMachine):
    """A breaker beside its rules told anew: the words that the backend has given ("not before") are kept in a list, and it is out of use
    until all of them have passed and a trial that had heard all of them has succeeded. A probe's word ("nobody is there", or "wait for
    me") holds beside them until the next one, or its end."""

    calls = Bundle("calls")

    @initialize(trip_after=st.integers(1, 5), window=st.integers(1, 6), min_calls=st.integers(1, 7), share=st.sampled_from([0.3, 0.5, 1.0]))
    def start(self, trip_after: int, window: int, min_calls: int, share: float) -> None:
        self.clock = Clock()
        self.breaker = Breaker(
            self.clock, trip_after=trip_after, window=window, min_calls=min_calls, trip_share=share, first_s=1.0, longest_s=8.0
        )
        self.trip_after = trip_after
        self.window, self.least, self.share = window, min(window, min_calls), share
        self.words: list[float] = []
        self.connect_was_last = False
        self.failed_trials = 0
        self.outcomes: list[bool] = []  # since it was closed; True: a fault
        self.trips = 0
        self.trial: Sent | None = None
        self.probe_until = -math.inf
        self.nobody_there = False
        self.heard = False
        self.deadline = -math.inf

    @rule(seconds=st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.time += seconds

    @precondition(lambda self: self.may_go(early=False))
    @rule(target=calls)
    def begin(self) -> Sent:
        return self._sent(self.breaker.begin())

    @precondition(lambda self: hasattr(self, "words"))
    @rule(target=calls)
    def begin_early(self) -> Sent:
        return self._sent(self.breaker.begin(early=True))

    def _sent(self, ticket: Ticket) -> Sent:
        if self.words and self.trial is not None:
            return Sent(ticket, -1, None)
        sent = Sent(ticket, self.trips, len(self.words) if self.words else None)
        if self.words:
            self.trial = sent
        return sent

    def _counts(self, call: Sent) -> bool:
        return not self.words and call.trips == self.trips and call.words is None

    @rule(call=consumes(calls))
    def succeeded(self, call: Sent) -> None:
        self.breaker.succeeded(call.ticket)
        if call is self.trial:
            self.trial = None
            self.heard = True
            self._probe_lifted()
            if max(self.words) == max(self.words[: call.words]):
                self.words, self.outcomes, self.failed_trials = [], [], 0
        elif self._counts(call):
            self.heard = True
            self.outcomes.append(False)

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
            self._word(fault, asked)
        elif self._counts(call):
            self.outcomes.append(True)
            if is_word or fault == "connect" or self._bad_enough():
                self._word(fault, asked)
        elif is_word:
            self._word(fault, asked)

    def _bad_enough(self) -> bool:
        of_late = self.outcomes[-self.window :]
        in_a_row = all(self.outcomes[-self.trip_after :]) and len(self.outcomes) >= self.trip_after
        return in_a_row or (len(of_late) >= self.least and sum(of_late) / len(of_late) >= self.share)

    def _word(self, fault: Fault, asked: float | None) -> None:
        self.trips += not self.words
        self.words.append(self.clock.time + (min(8.0, 2.0**self.failed_trials) if asked is None else asked))
        self.connect_was_last = fault == "connect"

    @rule(call=consumes(calls))
    def abandoned(self, call: Sent) -> None:
        self.breaker.abandoned(call.ticket)
        if call is self.trial:
            self.trial = None

    @rule(within=st.sampled_from([0.5, 3.0, 6.0]))
    def a_probe_sets_out(self, within: float) -> None:
        self.breaker.probing(within)
        self.heard = False
        self.nobody_there = self.nobody_there and self.clock.time < self.probe_until
        if self.nobody_there or (self.words and self.connect_was_last):
            self.probe_until = max(self.probe_until, self.clock.time + within)

    @rule()
    def a_probe_connects(self) -> None:
        self.breaker.reachable()
        self._probe_lifted()
        if self.words and self.connect_was_last and self.clock.time >= max(self.words):
            self.words, self.outcomes, self.failed_trials, self.trial = [], [], 0, None

    @rule(within=st.sampled_from([0.5, 3.0, 7.0]))
    def a_probe_cannot(self, within: float) -> None:
        self.breaker.unreachable(within)
        if not self.heard:
            self.probe_until = self.clock.time + within
            self.nobody_there = True

    def _probe_lifted(self) -> None:
        self.probe_until = -math.inf
        self.nobody_there = False

    def may_go(self, *, early: bool) -> bool:
        if not hasattr(self, "words") or (self.clock.time < self.probe_until and (self.nobody_there or not early)):
            return False
        return not self.words or (self.trial is None and (early or self.clock.time >= max(self.words)))

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "words"):
            return
        assert self.breaker.admits() == self.may_go(early=False)
        assert self.breaker.admits(early=True) == self.may_go(early=True)
        deadline = max(*self.words, self.probe_until, -math.inf)
        assert self.breaker.wait_s == max(0.0, deadline - self.clock.time)
        state = "open" if self.clock.time < deadline else "half_open" if self.words else "closed"
        assert self.breaker.state == state

    @invariant()
    def pauses_of_the_calls_are_only_extended(self) -> None:
        """Whatever probes say: until a trial has succeeded, no call that is not early goes before the latest deadline there was."""
        if not hasattr(self, "words"):
            return
        self.deadline = max(self.deadline, *self.words) if self.words else -math.inf
        if self.clock.time < self.deadline:
            assert not self.breaker.admits()
            assert self.clock.time + self.breaker.wait_s >= self.deadline


TestOutages = Outages.TestCase
TestOutages.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
