from __future__ import annotations

import pytest

from gateway.telemetry import families
from gateway.telemetry.numbers import Bins, Numbers, Snapshot, lasting, merged


def test_a_cell_is_made_once() -> None:
    numbers = Numbers()
    numbers.counter(families.HEDGES, "m", "true").value += 1
    numbers.counter(families.HEDGES, "m", "true").value += 2
    numbers.counter(families.HEDGES, "m", "false").value += 4
    assert numbers.snapshot() == {"trilemma_hedges": {("m", "true"): 3.0, ("m", "false"): 4.0}}


def test_a_value_that_is_a_bound_counts_below_it() -> None:
    numbers = Numbers()
    histogram = numbers.histogram(families.LOOP_DELAY)
    bounds = families.LOOP_DELAY.bounds
    for value in (0.0, bounds[0], bounds[0] + 1e-9, bounds[-1], bounds[-1] + 1):
        histogram.observe(value)
    bins = numbers.snapshot()["trilemma_loop_delay_seconds"][()]
    assert isinstance(bins, Bins)
    assert bins.counts == (2, 1, *[0] * (len(bounds) - 3), 1, 1)
    assert bins.total == pytest.approx(2 * bounds[0] + 2 * bounds[-1] + 1)


def test_a_snapshot_stays_as_it_was() -> None:
    numbers = Numbers()
    cell, histogram = numbers.counter(families.DISCONNECTS), numbers.histogram(families.LOOP_DELAY)
    cell.value += 1
    histogram.observe(1.0)
    before = numbers.snapshot()
    cell.value += 1
    histogram.observe(1.0)
    assert before["trilemma_client_disconnects"] == {(): 1.0}
    bins = before["trilemma_loop_delay_seconds"][()]
    assert isinstance(bins, Bins) and sum(bins.counts) == 1


def test_series_that_are_forgotten() -> None:
    numbers = Numbers()
    for backend in ("a", "b"):
        numbers.counter(families.UPSTREAM, backend, "ok", "served").value += 1
        numbers.histogram(families.UPSTREAM_DURATION, backend).observe(1)
    assert set(numbers.labels(families.UPSTREAM)) == {("a", "ok", "served"), ("b", "ok", "served")}
    numbers.forget(families.UPSTREAM, [("a", "ok", "served"), ("nobody", "ok", "served")])
    numbers.forget(families.UPSTREAM_DURATION, [("a",)])
    assert numbers.labels(families.UPSTREAM) == (("b", "ok", "served"),)
    assert numbers.labels(families.UPSTREAM_DURATION) == (("b",),)


def test_several_processes_as_one() -> None:
    """Counters, histograms and calls in flight are added up; a backend is as its worst worker finds it."""
    bins = Bins((0, 1, *[0] * 10), 0.002)
    one: Snapshot = {
        "trilemma_tokens": {("m", "input", "served"): 10.0, ("m", "output", "served"): 1.0},
        "trilemma_inflight": {("a",): 2.0},
        "trilemma_backend_up": {("a",): 1.0},
        "trilemma_breaker_state": {("a",): 0.0},
        "trilemma_loop_delay_seconds": {(): bins},
        "trilemma_build_info_is_no_family_of_counters": {},
    }
    one = {name: values for name, values in one.items() if values}
    other: Snapshot = {
        "trilemma_tokens": {("m", "input", "served"): 5.0, ("n", "input", "served"): 7.0},
        "trilemma_inflight": {("a",): 3.0},
        "trilemma_backend_up": {("a",): 0.0},
        "trilemma_breaker_state": {("a",): 2.0},
        "trilemma_loop_delay_seconds": {(): bins},
    }
    assert merged([one, other]) == {
        "trilemma_tokens": {("m", "input", "served"): 15.0, ("m", "output", "served"): 1.0, ("n", "input", "served"): 7.0},
        "trilemma_inflight": {("a",): 5.0},
        "trilemma_backend_up": {("a",): 0.0},
        "trilemma_breaker_state": {("a",): 2.0},
        "trilemma_loop_delay_seconds": {(): Bins((0, 2, *[0] * 10), 0.004)},
    }


def test_what_remains_of_a_process() -> None:
    bins = Bins((0,) * 12, 0.0)
    kept = {"trilemma_client_disconnects": {(): 1.0}, "trilemma_loop_delay_seconds": {(): bins}}
    gauges = {"trilemma_inflight": {("a",): 1.0}, "trilemma_build": {("1", "3"): 1.0}}
    assert lasting({**kept, **gauges}) == kept
