"""Votes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.answers.equivalence import Key
from policies.answers.votes import tally

A, B, C = (Key("letter", letter) for letter in "ABC")


def test_the_majority() -> None:
    vote = tally([B, A, None, A, C, A, B])
    assert [(group.key, group.members, group.weight) for group in vote.groups] == [(A, (1, 3, 5), 3.0), (B, (0, 6), 2.0), (C, (4,), 1.0)]
    assert (vote.v1, vote.v2, vote.total, vote.abstained) == (3, 2, 6, (2,))
    assert (vote.chosen, vote.share, vote.split) == (1, 0.5, True)
    assert vote.leader is not None and vote.leader.key == A
    assert vote.runner_up is not None and vote.runner_up.key == B


def test_of_equals_the_one_that_came_first() -> None:
    vote = tally([None, B, A, A, B])
    assert vote.leader is not None
    assert (vote.leader.key, vote.chosen, vote.v1, vote.v2) == (B, 1, 2, 2)


def test_one_answer() -> None:
    vote = tally([A, None, A])
    assert (vote.v1, vote.v2, vote.runner_up, vote.share, vote.split) == (2, 0, None, 1.0, False)


@pytest.mark.parametrize("keys", [[], [None, None]])
def test_nobody_answers(keys: list[Key | None]) -> None:
    vote = tally(keys)
    assert (vote.leader, vote.chosen, vote.share, vote.v1, vote.total) == (None, None, None, 0, 0)
    assert vote.abstained == tuple(range(len(keys)))


def test_weights_may_outvote_numbers() -> None:
    vote = tally([A, A, B, None], weights=[0.2, 0.1, 0.5, 9.0])
    assert vote.leader is not None
    assert (vote.leader.key, vote.chosen, vote.v1, vote.v2) == (B, 2, 1, 2)
    assert vote.share == pytest.approx(0.5 / 0.8)


def test_of_equal_weight_the_one_with_more_votes() -> None:
    vote = tally([A, B, B], weights=[1.0, 0.5, 0.5])
    assert vote.leader is not None
    assert vote.leader.key == B


def test_weights_that_are_nothing_leave_the_count() -> None:
    vote = tally([A, B, B], weights=[0.0, 0.0, 0.0])
    assert (vote.chosen, vote.share) == (1, None)


def test_the_most_confident_of_the_leaders_is_delivered() -> None:
    assert tally([A, B, A, A, A], confidences=[-2.0, -0.1, None, -1.0, -1.0]).chosen == 3
    assert tally([A, A], confidences=[None, -5.0]).chosen == 1
    assert tally([A, A], confidences=[None, None]).chosen == 0
    assert tally([A, A], confidences=[float("nan"), -5.0]).chosen == 1


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_weights_that_are_none(weights: list[float]) -> None:
    with pytest.raises(ValueError, match=r"one for each|numbers from 0"):
        tally([A, B], weights=weights)


def test_confidences_that_are_missing() -> None:
    with pytest.raises(ValueError, match="one for each"):
        tally([A, B], confidences=[1.0])


BALLOTS = st.lists(st.tuples(st.sampled_from([A, B, C, None]), st.sampled_from([0.0, 0.1, 0.25, 0.7, 1.0])), max_size=12)


@given(BALLOTS, st.randoms())
def test_the_order_counts_for_ties_alone(ballots: list[tuple[Key | None, float]], random: Random) -> None:
    shuffled = list(ballots)
    random.shuffle(shuffled)
    one, other = (tally([key for key, _ in some], [weight for _, weight in some]) for some in (ballots, shuffled))
    assert {(group.key, group.votes, group.weight) for group in one.groups} == {
        (group.key, group.votes, group.weight) for group in other.groups
    }
    assert (one.v1, one.v2, one.total, one.share, len(one.abstained)) == (
        other.v1,
        other.v2,
        other.total,
        other.share,
        len(other.abstained),
    )
    if one.runner_up is None or one.leader is None or (one.leader.weight, one.v1) != (one.runner_up.weight, one.v2):
        assert one.leader is None or (other.leader is not None and one.leader.key == other.leader.key)


@given(BALLOTS)
def test_every_candidate_is_counted_once(ballots: list[tuple[Key | None, float]]) -> None:
    vote = tally([key for key, _ in ballots])
    places = [place for group in vote.groups for place in group.members] + list(vote.abstained)
    assert sorted(places) == list(range(len(ballots)))
    assert vote.total + len(vote.abstained) == len(ballots)
    if vote.chosen is not None:
        assert vote.leader is not None
        assert ballots[vote.chosen][0] == vote.leader.key
