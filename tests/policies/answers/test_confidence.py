"""Confidence from log-probabilities."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.confidence import (
    Logprobs,
    bottom_groups,
    cisc_weights,
    lowest_group,
    mean_logprob,
    most_confident,
    read,
    self_certainty,
    tail,
    token_confidences,
)

HALF, QUARTER = math.log(0.5), math.log(0.25)


def token(logprob: object, *top: object) -> dict[str, object]:
    return {"token": "x", "logprob": logprob, "bytes": [120], "top_logprobs": [{"token": "y", "logprob": each} for each in top]}


def test_logprobs_of_a_chat() -> None:
    assert read({"content": [token(-0.5, -0.5, -1.5), token(-2.0)]}) == Logprobs((-0.5, -2.0), ((-0.5, -1.5), ()))


def test_logprobs_of_a_completion() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [None, -0.5], "top_logprobs": [None, {"b": -0.5, "c": -1.5}], "text_offset": [0, 1]}
    assert read(logprobs) == Logprobs((-0.5,), ((-0.5, -1.5),))
    assert read({"token_logprobs": [-1.0], "top_logprobs": None}) == Logprobs((-1.0,), ((),))


def test_what_an_engine_masked_is_left_out() -> None:
    assert read({"content": [token(-0.5, -0.5, -9999.0, None, float("-inf"), float("nan"))]}) == Logprobs((-0.5,), ((-0.5,),))
    assert read({"content": [token(-9999.0), token(None), token(-1)]}) == Logprobs((-1.0,), ((),))


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {},
        [],
        "x",
        {"content": None},
        {"content": []},
        {"content": [None]},
        {"content": [{}]},
        {"content": [token(True)]},
        {"token_logprobs": []},
    ],
)
def test_without_logprobs_there_is_nothing(logprobs: object) -> None:
    assert read(logprobs) is None


def test_nothing_is_made_of_nothing() -> None:
    assert mean_logprob([]) is None
    assert token_confidences([(), (-0.5,)]) == []
    assert lowest_group([]) is None
    assert bottom_groups([]) is None
    assert tail([]) is None
    assert self_certainty([(), (-0.5,)]) is None
    assert cisc_weights([]) is None
    assert most_confident([None], 0.5) == []


def test_mean() -> None:
    assert mean_logprob([-1.0, -2.0, -6.0]) == -3.0


def test_token_confidence() -> None:
    """(log 2 + log 4) / 2 = 1.5 log 2."""
    assert token_confidences([(HALF, QUARTER), (), (-1.0, -2.0, -6.0)]) == [pytest.approx(1.5 * math.log(2)), 3.0]


def test_groups() -> None:
    """Windows of 2 of 4, 2, 6, 8, 2: means 3, 4, 7, 5."""
    values = [4.0, 2.0, 6.0, 8.0, 2.0]
    assert lowest_group(values, 2) == 3.0
    assert bottom_groups(values, 2, share=0.5) == 3.5
    assert bottom_groups(values, 2) == 3.0
    assert tail(values, 2) == 5.0
    assert lowest_group(values, 9) == bottom_groups(values, 9) == tail(values, 9) == pytest.approx(4.4)
    assert lowest_group(values, 1) == 2.0


def test_a_window_has_tokens() -> None:
    with pytest.raises(ValueError, match="at least one"):
        lowest_group([1.0], 0)


def test_self_certainty() -> None:
    """KL of (1/2, 1/2) to (3/4, 1/4): (log 2/3 + log 2) / 2, whatever the mass outside of them."""
    expected = (math.log(2 / 3) + math.log(2)) / 2
    assert self_certainty([(math.log(0.75), math.log(0.25))]) == pytest.approx(expected)
    assert self_certainty([(math.log(0.3), math.log(0.1))]) == pytest.approx(expected)
    assert self_certainty([(QUARTER, QUARTER, QUARTER)]) == pytest.approx(0.0)
    assert self_certainty([(QUARTER, QUARTER), (math.log(0.75), math.log(0.25))]) == pytest.approx(expected / 2)


def test_weights_of_cisc() -> None:
    """exp(0) to exp(log 3): 1 to 3; at half the temperature 1 to 9."""
    assert cisc_weights([0.0, math.log(3)]) == pytest.approx([0.25, 0.75])
    assert cisc_weights([0.0, math.log(3)], temperature=0.5) == pytest.approx([0.1, 0.9])
    assert cisc_weights([-7.0, -7.0]) == pytest.approx([0.5, 0.5])


def test_standardised_weights_have_no_unit() -> None:
    """Two values stand at -1 and 1: exp(2) apart."""
    expected = [1 / (1 + math.exp(2)), math.exp(2) / (1 + math.exp(2))]
    assert cisc_weights([0.0, 0.001], standardised=True) == pytest.approx(expected)
    assert cisc_weights([0.0, 1000.0], standardised=True) == pytest.approx(expected)
    assert cisc_weights([5.0, 5.0], standardised=True) == pytest.approx([0.5, 0.5])


def test_a_candidate_without_confidence_leaves_the_plain_vote() -> None:
    assert cisc_weights([1.0, None]) is None
    assert cisc_weights([1.0, float("nan")]) is None


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_temperatures_that_are_none(temperature: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        cisc_weights([1.0], temperature)


def test_the_most_confident() -> None:
    assert most_confident([1.0, None, 3.0, 2.0, 3.0], 0.5) == [2, 4]
    assert most_confident([1.0, 3.0, 3.0], 0.1) == [1]
    assert most_confident([1.0, 3.0], 1.0) == [0, 1]


FLOATS = st.floats(min_value=-50.0, max_value=50.0)


@given(st.lists(FLOATS, min_size=1, max_size=40), st.integers(min_value=1, max_value=50))
def test_groups_are_ordered(values: list[float], window: int) -> None:
    lowest, bottom = lowest_group(values, window), bottom_groups(values, window, 0.3)
    assert lowest is not None and bottom is not None
    assert min(values) - 1e-9 <= lowest <= bottom + 1e-9 <= max(values) + 2e-9
    runs = [values[at : at + window] for at in range(max(1, len(values) - window + 1))]
    assert lowest == pytest.approx(min(sum(run) / len(run) for run in runs), abs=1e-9)


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8),
    st.floats(min_value=1e-6, max_value=1e6),
    st.booleans(),
)
def test_weights_are_shares(confidences: list[float], temperature: float, standardised: bool) -> None:
    weights = cisc_weights(confidences, temperature, standardised)
    assert weights is not None
    assert all(weight > 0.0 for weight in weights)
    assert math.fsum(weights) == pytest.approx(1.0)
    assert weights[confidences.index(max(confidences))] == max(weights)
