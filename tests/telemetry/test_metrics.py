"""What a receipt adds to the numbers. How real requests come to be counted: tests/http/test_metrics.py."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pool.discovery.endpoint import Endpoint
from gateway.serving.call import Receipt, Tried
from gateway.serving.choice import Choice, Decided
from gateway.serving.feedback import Said
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.numbers import Bins
from gateway.wire.usage import Rates, Usage
from policies.values.plan import Plan
from policies.values.situation import Prices
from tests.telemetry.receipts import CHAT, TEXT, receipt, state, upstream


class Counting:
    """Metrics over the small configuration, on clocks that stand still at `at`."""

    def __init__(self) -> None:
        self.at = 1.0
        self.metrics = Metrics(lambda: self.at, lambda: self.at)
        self.state = state()
        self.metrics.follow(self.state)

    def settle(self, *receipts: Receipt) -> None:
        for each in receipts:
            self.metrics.settled(each)

    def of(self, family: str) -> dict[tuple[str, ...], Any]:
        """A family's series that count something; of histograms (how many, sum)."""
        values = self.metrics.snapshot().get(f"trilemma_{family}", {})
        pairs = {labels: (sum(v.counts), pytest.approx(v.total)) if isinstance(v, Bins) else v for labels, v in values.items()}
        return {labels: value for labels, value in pairs.items() if value not in (0.0, (0, 0.0))}


@pytest.fixture
def counting() -> Counting:
    return Counting()


def test_a_request_that_went_well(counting: Counting) -> None:
    counting.settle(receipt(upstream(usage=Usage(100, 60, 10)), rates=Rates(1, 0.5, 2), waited=0.2, overhead=0.15))
    assert counting.of("requests") == {(CHAT, "m", "single", "2xx", ""): 1.0}
    assert counting.of("request_duration_seconds") == {(CHAT, "m"): (1, 1.0)}
    assert counting.of("upstream_requests") == {("a", "ok", "served"): 1.0}
    assert counting.of("upstream_duration_seconds") == {("a",): (1, 0.4)}
    assert counting.of("tokens") == {("m", "input", "served"): 40.0, ("m", "cached_input", "served"): 60.0, ("m", "output", "served"): 10.0}
    assert counting.of("cost") == {("m", "served"): (40 + 60 * 0.5 + 10 * 2) / 1e6}
    # 0.1 s before the call, 0.2 s waiting for it; of the gateway's own 0.15 s the rest was after it.
    assert counting.of("overhead_seconds") == {("before",): (1, 0.1), ("after",): (1, 0.05)}


def test_candidates_by_what_became_of_them_and_verdicts_by_place(counting: Counting) -> None:
    """Candidates run side by side; that is no hedging."""
    calls = [upstream(purpose="candidate"), upstream(purpose="candidate", outcome="cancelled")]
    tried = [Tried(0, "won"), Tried(1, "lost"), Tried(2), Tried(3, "lost")]
    counting.settle(receipt(*calls, strategy="best", tried=tried, places=[(4, 1), (4, 1), (2, 2)]))
    assert counting.of("candidates") == {("best", "won"): 1.0, ("best", "lost"): 2.0, ("best", "cancelled"): 1.0}
    assert counting.of("verdicts") == {("best", "4", "1"): 2.0, ("best", "2", "2"): 1.0}
    assert counting.of("hedges") == {}


def test_the_wait_in_a_queue_is_no_overhead(counting: Counting) -> None:
    """0.08 s of the 0.1 s before the call were spent in the queue, and 0.2 s in the call."""
    counting.settle(receipt(upstream(), waited=0.28, overhead=0.03))
    assert counting.of("overhead_seconds") == {("before",): (1, 0.02), ("after",): (1, 0.01)}


def test_requests_without_a_call_or_with_several(counting: Counting) -> None:
    failed = upstream("b", outcome="backend_error", fault="reset", ended=0.1)
    counting.settle(receipt(overhead=0.01, status=401, outcome="caller_error", code="invalid_api_key", requested_model=None))
    counting.settle(receipt(failed, upstream(), overhead=0.02))
    assert counting.of("overhead_seconds") == {("other",): (2, 0.03)}
    assert counting.of("upstream_requests") == {("a", "ok", "served"): 1.0, ("b", "backend_error", "served"): 1.0}
    assert counting.of("requests") == {
        (CHAT, "none", "single", "4xx", "invalid_api_key"): 1.0,
        (CHAT, "m", "single", "2xx", ""): 1.0,
    }
    assert counting.of("hedges") == counting.of("fallbacks") == {}


def test_the_pace_of_a_stream(counting: Counting) -> None:
    """First event at 0.3 s, end at 0.5 s: four tokens after the first one."""
    counting.settle(receipt(upstream(usage=Usage(1, 0, 5)), events=7))
    assert counting.of("time_to_first_token_seconds") == {("m",): (1, 0.3)}
    assert counting.of("time_per_output_token_seconds") == {("m",): (1, 0.05)}


@pytest.mark.parametrize(
    "call",
    [{"usage": None}, {"usage": Usage(1, 0, 1)}, {"usage": Usage(1, 0, 5), "outcome": "backend_error"}],
    ids=["untold", "one token", "broken"],
)
def test_a_stream_without_a_pace(counting: Counting, call: dict[str, Any]) -> None:
    counting.settle(receipt(upstream(**call), events=7))
    assert counting.of("time_to_first_token_seconds") == {("m",): (1, 0.3)}
    assert counting.of("time_per_output_token_seconds") == {}


def test_hedges(counting: Counting) -> None:
    """The second call set out while the first still ran. Whichever gave the answer, its times are the stream's."""
    won = receipt(upstream("a", outcome="cancelled", first=None), upstream("b", started=0.2, first=0.4), events=3)
    lost = receipt(upstream("a", first=0.35), upstream("b", started=0.2, first=None, outcome="cancelled"), backend="a", events=3)
    failed = receipt(
        upstream("a", outcome="backend_error"), upstream("b", started=0.2, outcome="backend_error"), status=502, outcome="backend_error"
    )
    counting.settle(won, lost, failed)
    assert counting.of("hedges") == {("m", "true"): 1.0, ("m", "false"): 2.0}
    assert counting.of("time_to_first_token_seconds") == {("m",): (2, 0.75)}
    assert counting.of("fallbacks") == {}


def test_a_second_try_is_no_hedge(counting: Counting) -> None:
    counting.settle(receipt(upstream(ended=0.2, outcome="backend_error"), upstream("b", started=0.2)))
    assert counting.of("hedges") == {}


@pytest.mark.parametrize(
    ("fields", "fell"),
    [
        ({"requested_model": "m"}, {("m", "n"): 1.0}),
        ({"requested_model": "alias"}, {("m", "n"): 1.0}),
        ({"requested_model": "n"}, {}),
        ({"requested_model": "auto", "plan": "small", "policy": "fixed"}, {("m", "n"): 1.0}),
        ({"requested_model": "auto", "plan": "large", "policy": "fixed"}, {}),
    ],
)
def test_fallbacks(counting: Counting, fields: dict[str, Any], fell: dict[tuple[str, str], float]) -> None:
    """A model that stood in, though the first one never got a call: its queue was full."""
    counting.settle(receipt(upstream("b", "n"), **fields))
    assert counting.of("fallbacks") == fell


def test_each_call_is_paid_at_its_own_model_s_price(counting: Counting) -> None:
    judge = upstream("b", "n", purpose="judge", usage=Usage(100, 0, 10))
    counting.settle(receipt(judge, upstream(usage=Usage(10, 0, 1)), rates=Rates(1, 0.5, 2)))
    assert counting.of("cost") == {("n", "judge"): (1_000 + 200) / 1e6, ("m", "served"): 12 / 1e6}
    assert counting.of("tokens")[("n", "input", "judge")] == 100.0
    assert counting.of("upstream_requests")[("b", "ok", "judge")] == 1.0


def test_decisions(counting: Counting) -> None:
    drawn = {"requested_model": "auto", "policy": "p", "plan": "small"}
    counting.settle(receipt(upstream(), **drawn), receipt(upstream(), **drawn), receipt(upstream(), explored=True, **drawn))
    assert counting.of("decisions") == {("p", "small", "false"): 2.0, ("p", "small", "true"): 1.0}
    assert counting.of("requests") == {(CHAT, "auto", "single", "2xx", ""): 3.0}


def test_how_long_deciding_took_and_what_no_policy_decided(counting: Counting) -> None:
    drawn = {"requested_model": "auto", "policy": "p", "plan": "small"}
    made = [
        Choice(Decided((), Prices(), fallback=fallback), Plan("small", "m"), took_s=took_s)
        for fallback, took_s in ((None, 0.0002), ("features_late", 0.15), ("failed", 0.0002), ("failed", 0.0002))
    ]
    counting.settle(*(receipt(upstream(), choice=each, **drawn) for each in made), receipt(upstream()))
    assert counting.of("decisions_failed") == {("p", "features_late"): 1.0, ("p", "failed"): 2.0}
    assert counting.of("decision_seconds") == {("p",): (4, 0.1506)}


def test_what_no_configuration_holds_is_other(counting: Counting) -> None:
    odd = receipt(upstream("zz", "zz"), requested_model="zz", path="/v1/zz", status=777, outcome="ok", events=1)
    counting.settle(odd, receipt(status=0, outcome="client_closed", call=None, requested_model=None))
    assert counting.of("requests") == {
        ("other", "other", "single", "other", ""): 1.0,
        ("other", "none", "single", "none", "client_closed"): 1.0,
    }
    assert counting.of("upstream_requests") == {("other", "ok", "served"): 1.0}
    assert set(counting.of("time_to_first_token_seconds")) == {("other",)}
    assert counting.of("client_disconnects") == {(): 1.0}


@pytest.mark.parametrize(("value", "count"), [(b"0", {}), (b"00", {}), (b"2", {(): 1.0}), (b"10", {(): 1.0}), (b"two", {}), (b"-1", {})])
def test_retries_of_client_libraries(counting: Counting, value: bytes, count: dict[tuple[()], float]) -> None:
    counting.settle(receipt(headers=((b"accept", b"*/*"), (b"x-stainless-retry-count", value))))
    assert counting.of("client_retries") == count


def test_a_replica_that_is_gone_keeps_its_series_for_ten_minutes(counting: Counting) -> None:
    late = receipt(upstream("a"))
    counting.settle(receipt(upstream("a")), receipt(upstream("b")))
    counting.metrics.follow(state(TEXT.replace('  a: {url: "http://a", models: {m: m}}\n', ""), counting.state))
    counting.settle(late)
    counting.at += 599
    counting.metrics.tick()
    assert counting.of("upstream_requests") == {("a", "ok", "served"): 2.0, ("b", "ok", "served"): 1.0}
    counting.at += 1
    counting.metrics.tick()
    counting.settle(late)
    assert counting.of("upstream_requests") == {("b", "ok", "served"): 1.0, ("other", "ok", "served"): 1.0}
    assert set(counting.of("upstream_duration_seconds")) == {("b",), ("other",)}


def test_a_replica_that_comes_back_goes_on_counting(counting: Counting) -> None:
    counting.settle(receipt(upstream("a")))
    counting.metrics.follow(state(TEXT.replace('  a: {url: "http://a", models: {m: m}}\n', "")))
    counting.at += 300
    counting.metrics.follow(state())
    counting.at += 900
    counting.metrics.tick()
    counting.settle(receipt(upstream("a")))
    assert counting.of("upstream_requests") == {("a", "ok", "served"): 2.0}


def test_a_thousand_replicas_that_come_and_go_leave_nothing(counting: Counting) -> None:
    for number in range(1_000):
        text = TEXT.replace("  a: {", f"  a-{number}: {{")
        counting.metrics.follow(state(text))
        counting.settle(receipt(upstream(f"a-{number}")))
        counting.at += 60
        counting.metrics.tick()
    assert len(counting.of("upstream_requests")) <= 11


def test_tokens_per_second_of_a_pool(counting: Counting) -> None:
    """A discovered backend's replicas are one pool, whose name may hold a slash: 10 and 20 tokens a second."""
    text = TEXT.replace('  b: {url: "http://b"', "  eu/b: {discover: {static: []}").replace(
        "static: []", 'static: ["http://x:1", "http://y:2"]'
    )
    replicas = [Endpoint("http://x:1"), Endpoint("http://y:2")]
    found = state(text, replicas=replicas)
    assert set(found.backends) == {"a", "eu/b/x:1", "eu/b/y:2"}
    counting.metrics.follow(found)
    for second in range(30):
        counting.at = 1.0 + second
        counting.metrics.tick()
        counting.settle(receipt(upstream("eu/b/x:1", usage=Usage(1, 0, 10))), receipt(upstream("eu/b/y:2", usage=Usage(1, 0, 20))))
    counting.at = 31.0
    assert counting.of("decode_tokens_per_second") == {("eu/b",): pytest.approx(30.0)}


def test_feedback_by_metric(counting: Counting) -> None:
    """Names that callers make up are one series."""
    words = [Said("d", "quality", 1.0), Said("d", "quality", 0.0, "failed"), Said("d", "quality", 1.0, "good_fit")]
    words += [Said("d", f"made-up-{number}", 1.0) for number in range(50)]
    for word in words:
        counting.metrics.heard(word)
    assert counting.of("feedback") == {("quality",): 1.0, ("failed",): 1.0, ("good_fit",): 1.0, ("other",): 50.0}
