from __future__ import annotations

import math

import numpy as np

from models.drift import Detector


def test_the_error_is_an_exponential_average_and_alarms_above_the_threshold() -> None:
    detector = Detector(rate=0.5, threshold=0.6, pulls=2)

    drift, alarm = detector.watched(detector.empty(2), [0, 1, 0, 0], [1.0, -0.5, 0.4, 1.0])

    # plan 0: 0.5; 0.45; 0.725 > 0.6
    assert alarm == 3
    assert np.allclose(drift.error, [0.725, -0.25])
    assert drift.pulls.tolist() == [3, 1]


def test_it_stays_quiet_until_there_were_enough_answers() -> None:
    detector = Detector(rate=0.5, threshold=0.6, pulls=5)

    assert detector.watched(detector.empty(1), [0] * 4, [1.0] * 4)[1] is None
    assert detector.watched(detector.empty(1), [0] * 9, [1.0] * 9)[1] == 4
    assert detector.watched(detector.empty(1), [0] * 9, [-1.0] * 9)[1] == 4


def test_it_goes_on_where_it_was() -> None:
    detector = Detector()
    errors = np.random.default_rng(1).uniform(-0.4, 0.5, 60).tolist()
    once, _ = detector.watched(detector.empty(1), [0] * 60, errors)
    first, _ = detector.watched(detector.empty(1), [0] * 23, errors[:23])

    twice, _ = detector.watched(first, [0] * 37, errors[23:])

    assert twice.error.tolist() == once.error.tolist()
    assert twice.pulls.tolist() == [60]


def test_after_an_alarm_what_was_decided_before_counts_little_and_all_begins_anew() -> None:
    detector = Detector(keep=0.005)
    drift, _ = detector.watched(detector.empty(2), [0, 1, 1], [0.5, 0.1, 0.1])

    drift = detector.marked(detector.marked(drift, 1, 100.0), 0, 200.0)

    assert drift.error.tolist() == [0.0, 0.0]
    assert drift.pulls.tolist() == [0, 0]
    assert drift.alarms.tolist() == [1, 1]
    assert np.allclose(detector.shares(drift, np.array([99.0, 100.0, 199.0, 200.0, 201.0])), [0.005**2, 0.005, 0.005, 1.0, 1.0], rtol=1e-12)


def test_only_the_last_marks_are_kept() -> None:
    detector = Detector(keep=0.5)
    drift = detector.empty(1)
    for at in range(20):
        drift = detector.marked(drift, 0, float(at))

    assert drift.marks.tolist() == [float(at) for at in range(12, 20)]
    assert drift.alarms.tolist() == [20]
    assert detector.shares(drift, np.array([0.0]))[0] == 0.5**8


def test_noise_alone_raises_no_alarm_and_a_drop_does_soon() -> None:
    detector = Detector()
    rng = np.random.default_rng(7)
    quiet = [(rng.random(12_000) < p) - p for p in (0.5, 0.7)]

    assert all(detector.watched(detector.empty(1), [0] * 12_000, errors.tolist())[1] is None for errors in quiet)

    dropped = ((rng.random(500) < 0.3) - 0.7).tolist()
    # the mean of e after n is -0.4 (1 - 0.98^n): -0.25 after 49, and noise of 0.05 around it
    alarm = detector.watched(detector.empty(1), [0] * 500, dropped)[1]
    assert alarm is not None
    assert 45 <= alarm <= 120
    assert not math.isnan(alarm)
