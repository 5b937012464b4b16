"""What a source's word is worth."""

from __future__ import annotations

import numpy as np
import pytest

from policies.signals.calibration import BELIEVED, Calibration, calibrated, calibrations

PRIOR = Calibration(0.1, 0.8)


def test_too_few_pairs_change_nothing() -> None:
    assert calibrated([(1.0, 0.0)] * 49, PRIOR) == PRIOR
    assert calibrated([(1.0, 0.0)] * 50, PRIOR) != PRIOR


def test_two_values_are_two_beta_posteriors() -> None:
    """40 times 0, of which 10 succeeded; 60 times 1, of which 45 did; each end was believed as strongly as 5 pairs."""
    pairs = [(0.0, 1.0)] * 10 + [(0.0, 0.0)] * 30 + [(1.0, 1.0)] * 45 + [(1.0, 0.0)] * 15
    assert calibrated(pairs, PRIOR) == (pytest.approx((0.5 + 10) / 45), pytest.approx((4 + 45) / 65))


def test_values_in_between_are_a_line() -> None:
    """Against least squares by numpy, the belief as 5 rows at either end."""
    random = np.random.default_rng(3)
    values = random.integers(0, 5, 200) / 4
    truth = (random.random(200) < 0.2 + 0.6 * values).astype(float)
    rows = np.concatenate([np.stack([1 - values, values], 1), np.array([[1, 0]] * 5 + [[0, 1]] * 5)])
    sides = np.concatenate([truth, [PRIOR.at_0] * 5, [PRIOR.at_1] * 5])
    expected = np.linalg.lstsq(rows, sides, rcond=None)[0]
    found = calibrated(zip(values.tolist(), truth.tolist(), strict=True), PRIOR)
    assert found == (pytest.approx(expected[0]), pytest.approx(expected[1]))
    assert found.at_0 == pytest.approx(0.2, abs=0.12) and found.at_1 == pytest.approx(0.8, abs=0.12)


def test_a_source_that_is_wrong_tells_nothing() -> None:
    pairs = [(0.0, 1.0)] * 50 + [(1.0, 0.0)] * 50
    found = calibrated(pairs, PRIOR)
    assert found.at_0 == found.at_1 == pytest.approx((50 + 5 * 0.1 + 5 * 0.8) / 110)


def test_a_value_that_was_never_said_stays_as_it_was_believed_to_be() -> None:
    assert calibrated([(1.0, 1.0)] * 95, PRIOR).at_0 == pytest.approx(0.1)


def test_each_source_has_its_own() -> None:
    found = calibrations({"judge": [(1.0, 1.0)] * 100, "other": []}, BELIEVED)
    assert found["schema"] == BELIEVED["schema"]
    assert found["other"] == (0.0, 1.0)
    assert found["judge"] == (0.0, 1.0)


def test_a_form_that_is_right_says_the_same_whichever_it_is() -> None:
    """Else it would matter of how many kinds an answer is."""
    assert len({each.at_1 for each in BELIEVED.values()}) == 1
    assert all(each.at_0 < 0.5 < each.at_1 < 1 for each in BELIEVED.values())
