"""The rule of promotions: what it asks, and that it is seldom wrong however often it is asked."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from policies.offpolicy.log import Logged, Option, Row, logged
from policies.offpolicy.promotion import Bound, Evidence, Rule, evidence, judged

GOOD = Evidence(1000, 500, 80.0, Bound(0.05, 0.01, 0.09, 0.6), Bound(-0.001, -0.002, -0.0005, 0.01), Bound(0.1, -0.1, 0.3, 2.0))


def verdict(found: Evidence, rule: Rule | None = None) -> str:
    return judged(rule or Rule(), found, "new", "old", 5.0).verdict


def test_a_candidate_that_is_better_and_no_dearer_is_promoted() -> None:
    record = judged(Rule(), GOOD, "new", "old", at=5.0, candidate_version=7, current_version=3)
    assert record.verdict == "promote" and record.reasons == ()
    plain = json.loads(json.dumps(record.plain()))
    assert (plain["candidate"], plain["current"], plain["at"], plain["candidate_version"]) == ("new", "old", 5.0, 7)
    assert plain["evidence"]["quality"] == {"estimate": 0.05, "low": 0.01, "high": 0.09, "current": 0.6}
    assert plain["rule"]["margin"] == 0.0
    assert [check["what"] for check in plain["checks"]] == [
        "requests",
        "labels",
        "effective sample size",
        "lower bound of the gain in quality",
        "upper bound of the rise in cost",
    ]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (replace(GOOD, requests=499), "requests"),
        (replace(GOOD, labels=99), "labels"),
        (replace(GOOD, ess=14.9), "effective sample size"),
        (replace(GOOD, quality=Bound(0.05, -0.001, 0.1, 0.6)), "lower bound of the gain in quality"),
        (replace(GOOD, quality=None), "lower bound of the gain in quality"),
        (replace(GOOD, cost=Bound(0.0, -0.001, 0.001, 0.01)), "upper bound of the rise in cost"),
        (replace(GOOD, cost=None), "upper bound of the rise in cost"),
    ],
)
def test_whatever_is_not_shown_is_waited_for(found: Evidence, reason: str) -> None:
    record = judged(Rule(), found, "new", "old", 5.0)
    assert record.verdict == "wait" and record.reasons == (reason,)


def test_a_margin_and_shares_may_be_given_up() -> None:
    loss = replace(GOOD, quality=Bound(-0.005, -0.015, 0.005, 0.6))
    assert verdict(loss) == "wait"
    assert verdict(loss, Rule(margin=0.02)) == "promote"
    dearer = replace(GOOD, cost=Bound(0.001, 0.0005, 0.0015, 0.01))
    assert verdict(dearer) == "wait"
    assert verdict(dearer, Rule(dearer=0.2)) == "promote"
    assert verdict(dearer, Rule(dearer=None)) == "promote"
    assert verdict(GOOD, Rule(slower=0.1)) == "wait"
    assert verdict(GOOD, Rule(slower=0.2)) == "promote"


def test_a_candidate_that_is_surely_worse_is_rejected() -> None:
    worse = replace(GOOD, quality=Bound(-0.05, -0.09, -0.01, 0.6))
    assert verdict(worse) == "reject"
    assert verdict(worse, Rule(margin=0.02)) == "wait"
    assert verdict(replace(worse, ess=3.0)) == "wait"


def log_of(n: int, seed: int, better: float) -> tuple[Logged, np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    """Two plans drawn evenly, small right in 0.5 of all cases, large in 0.5 + better; the candidate takes large."""
    generator = np.random.default_rng(seed)
    options = (Option("small", 0.5, 0.001, 1.0), Option("large", 0.5, 0.002, 1.0))
    rows = []
    for i in range(n):
        large = bool(generator.random() < 0.5)
        quality = float(generator.random() < 0.5 + better * large)
        plan, cost = ("large", 0.002) if large else ("small", 0.001)
        rows.append(Row(f"d{i:06}", plan, 0.5, options, quality=quality, cost=cost, latency=1.0, created=float(i)))
    return logged(rows, ["small", "large"]), np.tile([0.0, 1.0], (n, 1))


def test_the_evidence_of_a_log_holds_the_truth() -> None:
    found = evidence(*log_of(4000, 1, 0.3), alpha=0.05)
    assert found.requests == found.labels == 4000
    assert found.ess == pytest.approx(2000, rel=0.1)
    # Half of the log is the candidate's choice already: the gain is half of the difference.
    assert found.quality is not None and found.cost is not None and found.latency is not None
    assert 0.0 < found.quality.low < 0.15 < found.quality.high
    assert found.quality.current == pytest.approx(0.65, abs=0.03)
    assert found.cost.low <= 0.0005 <= found.cost.high
    assert found.latency.low <= 0.0 <= found.latency.high
    assert judged(Rule(dearer=None), found, "new", "old", 0.0).verdict == "promote"
    assert judged(Rule(dearer=0.0), found, "new", "old", 0.0).verdict == "wait"


def test_it_may_be_asked_after_every_hundred_requests_and_is_seldom_wrong() -> None:
    """The candidate is no better: of 60 logs, each asked 10 times, hardly one may promote (5 in 100 at the most)."""
    wrong = 0
    for seed in range(60):
        log, target = log_of(1000, seed, 0.0)
        asked = [evidence(log.at(np.arange(n)), target[:n], alpha=0.05) for n in range(100, 1001, 100)]
        wrong += any(verdict(found, Rule(dearer=None, least=0, least_labels=0)) == "promote" for found in asked)
    assert wrong <= 3


def test_what_the_log_cannot_show_is_no_evidence() -> None:
    log, target = log_of(200, 0, 0.3)
    never = replace(log, probabilities=np.tile([1.0, 0.0], (200, 1)), chosen=np.zeros(200, dtype=np.int64), propensities=np.ones(200))
    assert evidence(never, target, 0.05).quality is None
    unlabelled = evidence(replace(log, quality=np.full(200, np.nan)), target, 0.05)
    assert unlabelled.quality is None and unlabelled.labels == 0 and unlabelled.ess == 0.0
