from __future__ import annotations

import math

import pytest

from policies.decay import moved, problems, weight


def test_an_observation_counts_half_after_a_half_life() -> None:
    landmark, _ = moved(0.0, 1_000.0, 100.0)

    assert weight(1_000.0, landmark, 100.0) == 1.0
    assert weight(900.0, landmark, 100.0) == 0.5
    assert weight(700.0, landmark, 100.0) == 0.125


@pytest.mark.parametrize(
    ("landmark", "newest", "expected"),
    [
        (0.0, 250.0, (200.0, -2)),
        (200.0, 299.0, (200.0, 0)),
        (200.0, 300.0, (300.0, -1)),
        (500.0, 120.0, (500.0, 0)),  # what is late moves nothing
        (0.0, 1e9, (1e9, -2_000)),
    ],
)
def test_the_landmark_moves_by_whole_half_lives(landmark: float, newest: float, expected: tuple[float, int]) -> None:
    assert moved(landmark, newest, 100.0) == expected


@pytest.mark.parametrize(("half_life", "number"), [(1.0, 0), (1e9, 0), (0.5, 1), (-1.0, 1), (math.inf, 1), (math.nan, 1)])
def test_a_half_life_must_be_a_time(half_life: float, number: int) -> None:
    assert len(problems(half_life)) == number
