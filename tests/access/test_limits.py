"""Limits in one process: who is let through, what the others are told, and that it is true."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.keys import Principal
from gateway.access.limit import Need, limits_of
from gateway.access.limits import Limits, Permit, duration
from gateway.config.schema import Rules
from gateway.wire.errors import ApiError

SMALL = Need(10, 10)


class Clock:
    """Stands still until it is moved."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def caller(rules: Rules, key: str = "dev", tenant: str = "acme", of_tenant: Rules | None = None) -> Principal:
    tenants = {} if of_tenant is None else {tenant: of_tenant}
    return Principal(key, tenant, frozenset(("inference",)), None, limits=limits_of(key, rules, Rules(), tenant, tenants))


def permit(limits: Limits, principal: Principal) -> Permit:
    found = limits.permit(principal)
    assert found is not None
    return found


def refused(limits: Limits, principal: Principal, need: Need = SMALL) -> ApiError:
    with pytest.raises(ApiError) as caught:
        permit(limits, principal).take(need)
    return caught.value


def headers(error: ApiError) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in error.headers}


def told(found: Permit) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in found.headers()}


def test_a_caller_without_limits_is_never_counted() -> None:
    limits = Limits()

    assert limits.permit(caller(Rules())) is None
    assert len(limits) == 0


@pytest.mark.parametrize(
    ("rules", "need", "words"),
    [
        (Rules(rpm=2), SMALL, "requests per minute (RPM) of key `dev`: limit 2, used 2, requested 1"),
        (Rules(tpm=50), SMALL, "tokens per minute (TPM) of key `dev`: limit 50, used 40, requested 20"),
        (Rules(concurrency=2), SMALL, "requests at once of key `dev`: limit 2, used 2, requested 1"),
    ],
)
def test_the_third_is_refused_in_openais_shape_and_told_which_limit_it_met(rules: Rules, need: Need, words: str) -> None:
    limits, principal = Limits(Clock()), caller(rules)
    for _ in range(2):
        assert permit(limits, principal).take(need)

    error = refused(limits, principal, need)

    assert (error.status, error.code) == (429, "rate_limit_exceeded")
    assert b'"type":"rate_limit_error"' in error.body()
    assert words in error.message
    assert int(headers(error)["retry-after"]) >= 1
    assert int(headers(error)["retry-after-ms"]) >= 1


def test_the_tightest_limit_decides_and_is_named() -> None:
    limits = Limits(Clock())
    first, second = (caller(Rules(rpm=10), key, of_tenant=Rules(rpm=3)) for key in ("one", "two"))
    for principal in (first, second, first):
        permit(limits, principal).take(SMALL)

    assert "of tenant `acme`" in refused(limits, second).message
    assert told(permit(limits, second))["x-ratelimit-limit-requests"] == "3"
    assert told(permit(limits, second))["x-ratelimit-remaining-requests"] == "0"


def test_a_refused_request_takes_nothing_of_any_limit() -> None:
    """Neither a request of the minute nor a place: it is refused for its tokens."""
    limits, principal = Limits(Clock()), caller(Rules(rpm=2, tpm=30, concurrency=1))
    held = permit(limits, principal)
    held.take(Need(10, 10))
    held.close(20)
    for _ in range(5):
        assert "TPM" in refused(limits, principal).message

    assert told(permit(limits, principal))["x-ratelimit-remaining-requests"] == "1"
    assert permit(limits, principal).take(Need(10, 0))


def test_places_are_free_when_their_requests_end_however_often_that_is_said() -> None:
    limits, principal = Limits(Clock()), caller(Rules(concurrency=1))
    first = permit(limits, principal)
    first.take(SMALL)
    refused(limits, principal)
    first.close(None)
    first.close(None)

    permit(limits, principal).take(SMALL)
    refused(limits, principal)


def test_a_permit_that_was_never_taken_gives_nothing_back() -> None:
    limits, principal = Limits(Clock()), caller(Rules(concurrency=1))
    held = permit(limits, principal)
    held.take(SMALL)
    permit(limits, principal).close(5)

    refused(limits, principal)


@pytest.mark.parametrize(("spent", "remaining"), [(120, 880), (0, 1_000), (500, 500), (5_000, 0), (None, 700)])
def test_tokens_are_settled_with_what_was_used(spent: int | None, remaining: int) -> None:
    limits, principal = Limits(Clock()), caller(Rules(tpm=1_000))
    held = permit(limits, principal)
    held.take(Need(100, 200))
    assert told(held)["x-ratelimit-remaining-tokens"] == "700"
    held.close(spent)

    assert told(permit(limits, principal))["x-ratelimit-remaining-tokens"] == str(remaining)


def test_what_was_used_beyond_the_estimate_counts_from_its_end_on() -> None:
    clock = Clock()
    limits, principal = Limits(clock), caller(Rules(tpm=1_000))
    held = permit(limits, principal)
    held.take(Need(100, 100))
    clock.now += 59
    held.close(1_000)
    clock.now += 30

    assert told(permit(limits, principal))["x-ratelimit-remaining-tokens"] == "200"


def test_a_request_larger_than_the_limit_is_told_that_no_wait_helps() -> None:
    error = refused(Limits(Clock()), caller(Rules(tpm=100)), Need(90, 11))

    assert headers(error) == {"x-should-retry": "false"}
    assert "limit 100, requested 101" in error.message


def test_every_kind_is_told_with_limit_rest_and_reset() -> None:
    clock = Clock()
    limits, principal = Limits(clock), caller(Rules(rpm=60, tpm=1_000, concurrency=4))
    held = permit(limits, principal)
    assert told(held) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "60",
        "x-ratelimit-reset-requests": "0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "1000",
        "x-ratelimit-reset-tokens": "0s",
    }
    held.take(Need(100, 100))
    clock.now += 0.1

    assert told(held) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1m0.15s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "800",
        "x-ratelimit-reset-tokens": "1m0.15s",
    }


def test_counters_outlive_a_new_configuration() -> None:
    limits = Limits(Clock())
    for _ in range(3):
        permit(limits, caller(Rules(rpm=3))).take(SMALL)

    refused(limits, caller(Rules(rpm=3)))
    assert permit(limits, caller(Rules(rpm=4))).take(SMALL)
    refused(limits, caller(Rules(rpm=2)))
    assert told(permit(limits, caller(Rules(rpm=2))))["x-ratelimit-remaining-requests"] == "0"


def test_counters_of_callers_long_silent_are_forgotten_those_of_others_are_not() -> None:
    clock = Clock()
    limits = Limits(clock)
    runs = permit(limits, caller(Rules(concurrency=1), "runs"))
    runs.take(SMALL)
    for n in range(5_000):
        permit(limits, caller(Rules(rpm=1), f"key-{n}")).take(SMALL)
        clock.now += 0.2

    assert len(limits) < 2_100
    refused(limits, caller(Rules(concurrency=1), "runs"))
    refused(limits, caller(Rules(rpm=1), "key-4999"))


# Some of them so that a minute is just full.
PAUSES = st.one_of(st.floats(0, 1), st.floats(0, 40), st.sampled_from((0.0, 0.1, 0.2, 29.9, 59.7, 59.8, 59.9, 60.0)))
Ask = tuple[float, str, int, int]
asks: st.SearchStrategy[list[Ask]] = st.lists(
    st.tuples(PAUSES, st.sampled_from(("one", "two")), st.integers(1, 60), st.integers(0, 90)),
    max_size=60,
)


@given(asks=asks, rpm=st.integers(1, 6), tpm=st.integers(40, 150), tenant_rpm=st.integers(1, 8))
def test_in_no_60_seconds_more_is_let_through_than_there_is(asks: Sequence[Ask], rpm: int, tpm: int, tenant_rpm: int) -> None:
    """Requests by key and by tenant, and tokens as they were estimated or, where that is more, used."""
    clock = Clock(0.0)
    limits = Limits(clock)
    taken: list[tuple[float, str, int]] = []
    for pause, key, estimate, spent in asks:
        clock.now += pause
        held = permit(limits, caller(Rules(rpm=rpm, tpm=tpm), key, of_tenant=Rules(rpm=tenant_rpm)))
        try:
            held.take(Need(estimate, 0))
        except ApiError:
            continue
        held.close(min(spent, estimate))
        taken.append((clock.now, key, min(spent, estimate)))
    for start, _, _ in taken:
        window = [(key, tokens) for at, key, tokens in taken if start <= at < start + 60]
        assert len(window) <= tenant_rpm
        for name in ("one", "two"):
            assert sum(key == name for key, _ in window) <= rpm
            assert sum(tokens for key, tokens in window if key == name) <= tpm


@given(asks=asks, rpm=st.integers(1, 6), tpm=st.integers(40, 150), tenant_rpm=st.integers(1, 8))
def test_who_comes_again_after_the_time_it_was_told_is_served(asks: Sequence[Ask], rpm: int, tpm: int, tenant_rpm: int) -> None:
    clock = Clock(0.0)
    limits = Limits(clock)
    for pause, key, estimate, spent in asks:
        clock.now += pause
        principal = caller(Rules(rpm=rpm, tpm=tpm), key, of_tenant=Rules(rpm=tenant_rpm))
        held = permit(limits, principal)
        try:
            held.take(Need(estimate, 0))
        except ApiError as error:
            waits = headers(error)
            if "retry-after" not in waits:
                assert estimate > tpm
                continue
            assert int(waits["retry-after"]) * 1_000 >= int(waits["retry-after-ms"])
            clock.now += int(waits["retry-after-ms"]) / 1e3
            held = permit(limits, principal)
            held.take(Need(estimate, 0))
        held.close(spent)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1.0, "0s"),
        (0.0, "0s"),
        (0.0001, "1ms"),
        (0.12, "120ms"),
        (0.9999, "1s"),
        (1.0, "1s"),
        (8.64, "8.64s"),
        (10.0, "10s"),
        (59.5, "59.5s"),
        (59.9999, "1m0s"),
        (60.0, "1m0s"),
        (60.25, "1m0.25s"),
        (360.0, "6m0s"),
        (370.0, "6m10s"),
    ],
)
def test_times_are_written_as_openai_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds).decode() == text


def seconds_of(text: str) -> float:
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?", text)
    assert found is not None, text
    minutes, seconds, ms = (float(part or 0) for part in found.groups())
    return minutes * 60 + seconds + ms / 1e3


@given(seconds=st.floats(0, 1_000))
def test_times_are_rounded_up_by_less_than_a_millisecond(seconds: float) -> None:
    assert 0 <= seconds_of(duration(seconds).decode()) - seconds + 1e-9 < 1.001e-3


def test_candidates_beside_the_first_take_their_tokens_until_they_have_ended() -> None:
    """Of 100: 20 for the first, 60 for three more; the next one finds 20, and of what was not used all is back in the end."""
    limits = Limits(Clock())
    who = caller(Rules(rpm=3, tpm=100, concurrency=2))
    first = permit(limits, who)
    first.take(SMALL)
    three = first.beside()
    three.take(SMALL.times(3))
    assert told(first)["x-ratelimit-remaining-tokens"] == "20"
    assert told(first)["x-ratelimit-remaining-requests"] == "2", "it is one request"
    second = permit(limits, who)
    second.take(SMALL)
    with pytest.raises(ApiError) as caught:
        second.beside().take(SMALL)
    assert caught.value.status == 429
    second.close(0)
    three.close(0)
    first.close(35)
    assert told(permit(limits, who))["x-ratelimit-remaining-tokens"] == "65"


def test_candidates_that_the_limit_never_has_room_for_are_refused_for_good_and_take_nothing_of_any() -> None:
    limits = Limits(Clock())
    who = caller(Rules(tpm=1_000), of_tenant=Rules(tpm=100))
    one = permit(limits, who)
    one.take(SMALL)
    with pytest.raises(ApiError, match="larger than what may be used at all"):
        one.beside().take(SMALL.times(6))
    one.close(20)
    assert told(permit(limits, who))["x-ratelimit-remaining-tokens"] == "80"


def test_candidates_without_a_bound_take_an_eighth_of_the_minute_at_most() -> None:
    limits = Limits(Clock())
    one = permit(limits, caller(Rules(tpm=800)))
    one.beside().take(Need(10, None).times(5))
    assert told(one)["x-ratelimit-remaining-tokens"] == "650"  # 5 x 10 read, and 100
