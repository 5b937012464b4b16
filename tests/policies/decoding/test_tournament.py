"""The tournament: who meets whom, what a judge's words are worth, and what becomes of a judge that fails."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decoding.registry import strategy
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Sample, Won
from policies.decoding.tournament import Champion, Params, Player, build, paired, seeded
from policies.values.answer import Said
from tests.support.roles import Asked, FakeRoles, Reply, events, left_open_by_nobody, nobody, sample, says, winner

SHOWN = re.compile(r"^=== (\w+) answer A\n(.*)\n=== \1 answer B\n(.*)\n=== \1 end$", re.MULTILINE | re.DOTALL)


def answers(*numbers: int) -> list[Sample]:
    return [sample(index, f"The answer is {number}.") for index, number in enumerate(numbers)]


def pair_of(prompt: str) -> tuple[str, str]:
    found = SHOWN.search(prompt)
    assert found is not None
    return found[2], found[3]


def numbers_of(asked: Asked) -> tuple[int, int]:
    first, second = (re.findall(r"\d+", text)[-1] for text in pair_of(asked.prompt))
    return int(first), int(second)


def larger(asked: Asked) -> Reply:
    """A judge to whom the larger number is the better one."""
    first, second = numbers_of(asked)
    return "Judgment: tie" if first == second else f"I compared them.\nJudgment: {'A' if first > second else 'B'}"


async def played(params: Params, samples: Sequence[Sample], replies: Callable[[Asked], Reply]) -> tuple[Champion, FakeRoles]:
    roles = FakeRoles(samples, replies)
    won = await winner(build(params), roles)
    assert isinstance(won, Champion)
    return won, roles


async def test_the_best_of_four_after_two_rounds() -> None:
    won, roles = await played(Params(n=4, z=1e-6), answers(1, 2, 3, 4), larger)
    assert (won.index, won.why) == (3, "tournament")
    assert [(each.role, each.most) for each in roles.asked] == [("judge", 4_096)] * 8
    assert "What is 6 times 7?" in roles.asked[0].prompt
    # First by their order, then the two winners and the two losers, each pair in both orders.
    assert [numbers_of(each) for each in roles.asked] == [(1, 2), (2, 1), (3, 4), (4, 3), (2, 4), (4, 2), (1, 3), (3, 1)]
    assert (won.rounds, won.games, won.turned, won.void, won.asked) == (2, 4, 0, 0, 8)
    assert sorted(won.scores, key=lambda index: won.scores[index]) in ([0, 1, 2, 3], [0, 2, 1, 3])


async def test_all_questions_of_a_round_are_asked_at_once() -> None:
    _, roles = await played(Params(n=8), answers(*range(8)), larger)
    assert roles.most_open == 8


async def test_strengths_of_two() -> None:
    """Without the vote, one game won: p of the winner solves (p - 1)(p^2 + 1) = p + 1, which is p^2 (p - 1) = 2."""
    won, _ = await played(Params(n=2, votes=0.0), answers(5, 9), larger)
    p = math.exp(won.scores[1])
    assert p * p * (p - 1.0) == pytest.approx(2.0)
    assert won.scores[0] == pytest.approx(-won.scores[1])
    assert (won.index, won.why, won.rounds, won.games, won.asked) == (1, "tournament", 1, 1, 2)


async def test_a_lead_of_less_than_its_error_goes_to_the_vote() -> None:
    """As above: the lead is 2 log 1.6956 = 1.056, and its error by the information of the games
    sqrt(2 / (2 p / (1 + p)^2 + 2 p^2 / (1 + p^2)^2)) = 1.536; so the lead is 0.687 errors."""
    for z, index, why in ((0.68, 2, "tournament"), (0.70, 0, "close")):
        won, _ = await played(Params(n=3, votes=0.0, z=z), answers(5, 5, 9), larger)
        assert (won.index, won.why) == (index, why)
    won, _ = await played(Params(n=2, votes=0.0, z=0.70), answers(5, 9), larger)
    assert (won.index, won.why) == (1, "close"), "of as many votes, the stronger"


async def test_answers_that_are_the_same_are_one_player() -> None:
    samples = [
        sample(0, "The answer is 1/2."),
        sample(1, "So it is \\boxed{0.5}"),
        sample(2, "The answer is 3."),
        sample(3, "A poem\nof two lines"),
        sample(4, "<think>hm</think>A poem\nof two lines"),
        sample(5, "Another poem\nof two lines"),
        sample(6, "I get .50. The answer is .50"),
    ]
    players = seeded(samples)
    assert [player.members for player in players] == [(0, 1, 6), (3, 4), (2,), (5,)]
    assert [player.sample.index for player in players] == [0, 3, 2, 5]
    won, roles = await played(Params(n=7), samples, says("Judgment: tie"))
    assert won.index == 0
    assert won.scores[1] == won.scores[0] == won.scores[6] > won.scores[3] == won.scores[4]
    assert won.scores[3] > max(won.scores[2], won.scores[5])
    assert not any("hm" in text for each in roles.asked for text in pair_of(each.prompt))


@pytest.mark.parametrize(
    "samples",
    [
        answers(7, 7, 7),
        [sample(0, "Hard to tell,\nit may be anything."), sample(1, "The answer is 7."), sample(2, "It is 7. Answer: 7")],
        [sample(0, "The same\npoem"), sample(1, "The same\npoem")],
    ],
)
async def test_nobody_is_asked_where_all_say_the_same(samples: list[Sample]) -> None:
    roles = FakeRoles(samples, larger)
    won = await winner(build(Params(n=3)), roles)
    assert (won.why, roles.asked) == ("unanimous", [])
    assert won.index == (1 if "Hard" in samples[0].said.text else 0)


async def test_the_vote_counts_a_little_before_the_judge_speaks() -> None:
    won, roles = await played(Params(n=4), answers(3, 4, 5, 5), says("Judgment: tie"))
    assert numbers_of(roles.asked[0]) == (5, 3)
    assert (won.index, won.why) == (2, "close")
    assert (await played(Params(n=4), answers(3, 4, 5, 5), lambda asked: larger(asked)))[0].index == 2
    won, _ = await played(Params(n=5), answers(3, 3, 5, 7, 9), larger)
    assert won.index == 4, "who wins all its games beats a vote of two"


async def test_a_vote_that_is_worth_much_is_clear_at_once() -> None:
    won, roles = await played(Params(n=8, votes=16.0), answers(1, 1, 1, 1, 1, 1, 1, 9), larger)
    assert (won.index, won.why, won.asked, roles.asked) == (0, "vote", 0, [])


@pytest.mark.parametrize("place", ["A", "B"])
async def test_a_judge_who_prefers_a_place_decides_nothing(place: str) -> None:
    won, roles = await played(Params(n=6), answers(1, 2, 2, 2, 4, 5), says(f"Judgment: {place}"))
    assert (won.index, won.why) == (1, "close")
    assert won.turned == won.games == len(roles.asked) // 2
    assert won.places == [(2, "AB".index(place) + 1)] * len(roles.asked), "told, for the statistic of its bias"
    tied, _ = await played(Params(n=6), answers(1, 2, 2, 2, 4, 5), says("Judgment: tie"))
    assert tied.scores == won.scores
    assert (tied.turned, tied.places) == (0, [])


async def test_a_tie_in_one_order_is_three_quarters_of_a_game() -> None:
    """w to 1 - w: the slope at the maximum, 1 - 2 s(x) + w (1 - s(2 x)) - (1 - w) s(2 x), is 0."""

    def replies(asked: Asked) -> Reply:
        return "Judgment: A" if numbers_of(asked) == (5, 9) else "Judgment: tie"

    won, _ = await played(Params(n=2, votes=0.0), answers(5, 9), replies)
    x = won.scores[0]
    assert 1.0 - 2.0 / (1.0 + math.exp(-x)) + 0.75 - 1.0 / (1.0 + math.exp(-2.0 * x)) == pytest.approx(0.0, abs=1e-9)
    assert (won.turned, x > 0.0) == (1, True)


async def test_a_judge_who_goes_in_circles() -> None:
    """Each beats the next one: all are as strong, and the earliest wins."""

    def circle(asked: Asked) -> Reply:
        first, second = numbers_of(asked)
        return f"Judgment: {'A' if (second - first) % 3 == 1 else 'B'}"

    won, _ = await played(Params(n=3, rounds=3), answers(0, 1, 2), circle)
    assert (won.index, won.why, won.games) == (0, "close", 3)
    assert list(won.scores.values()) == pytest.approx([0.0] * 3, abs=1e-8)


@pytest.mark.parametrize(
    "reply", ["7", "0", "-1", "none", '"2"', "A or B", "<think>Judgment: A", "", None, Said("Judgment: A", finish="length")]
)
async def test_a_judge_who_says_nothing_leaves_the_vote(reply: Reply) -> None:
    won, roles = await played(Params(n=5), answers(4, 5, 6, 5, 9), says(reply))
    assert (won.index, won.why, won.games) == (1, "judge_failed", 0)
    assert (won.rounds, won.void) == (1, 2), "a whole round without a word is enough"
    assert won.asked == len(roles.asked) == 2 * 2 * (1 if reply is None else 2)


async def test_what_cannot_be_read_is_asked_for_once_more() -> None:
    def replies(asked: Asked) -> Reply:
        return larger(asked) if "Your reply before this one" in asked.prompt else "Both have merits."

    won, roles = await played(Params(n=2, votes=0.0), answers(5, 9), replies)
    assert (won.index, won.why, won.games, won.asked) == (1, "tournament", 1, 4)
    assert Counter(map(numbers_of, roles.asked)) == {(5, 9): 2, (9, 5): 2}


async def test_one_order_alone_does_not_count() -> None:
    def replies(asked: Asked) -> Reply:
        return None if numbers_of(asked)[0] == 9 else larger(asked)

    won, _ = await played(Params(n=4), answers(1, 5, 9, 2), replies)
    assert (won.index, won.why, won.rounds, won.games, won.void) == (1, "close", 2, 2, 2)
    assert won.scores[2] == pytest.approx(0.0, abs=1e-9), "as if it had not played"


async def test_a_bound_on_questions() -> None:
    won, roles = await played(Params(n=8, asks=9), answers(*range(8)), says("Neither."))
    assert won.asked == len(roles.asked) == 8, "two games with every question twice"
    won, roles = await played(Params(n=8, asks=9), answers(*range(8)), larger)
    assert won.asked == len(roles.asked) == 6, "two games; what they spared is enough for one more, and then no longer"


@pytest.mark.parametrize(
    ("params", "most"),
    [(Params(n=8), 48), (Params(n=2), 4), (Params(n=5), 24), (Params(n=16), 128), (Params(n=4, rounds=63), 24), (Params(n=8, asks=20), 20)],
)
def test_questions_in_the_worst_case(params: Params, most: int) -> None:
    assert (build(params).asks, build(params).most) == (most, params.n)
    assert build(params).needs == Needs(roles=frozenset({"judge"}), asked=Question("judge", params.room, params.verdict_tokens))


@pytest.mark.parametrize(
    ("ranked", "met", "pairs"),
    [
        ([0, 1, 2, 3], [], [(0, 1), (2, 3)]),
        ([3, 1, 2, 0], [(0, 1), (2, 3)], [(1, 3), (0, 2)]),
        ([2, 0, 1], [(0, 2)], [(1, 2)]),
        ([0, 1, 2, 3, 4], [], [(0, 1), (2, 3)]),
        ([0, 1, 2, 3], [(2, 3)], [(0, 1)]),
        ([0, 1], [(0, 1)], []),
        ([], [], []),
    ],
)
def test_pairs(ranked: list[int], met: list[tuple[int, int]], pairs: list[tuple[int, int]]) -> None:
    assert paired(ranked, set(met)) == pairs


async def test_who_came_to_no_end_does_not_play() -> None:
    cut = sample(0, "The answer is 9 because", finish="length")
    won, roles = await played(Params(n=4), [cut, *answers(0, 3, 4)[1:]], larger)
    assert (won.index, set(won.scores)) == (2, {1, 2})
    assert all(9 not in numbers_of(each) for each in roles.asked)


@pytest.mark.parametrize(
    ("samples", "index", "why"),
    [
        (answers(7), 0, "only_one"),
        ([sample(0, "The ans", finish="length"), sample(1, "The answer is 7.")], 1, "only_one"),
        ([sample(3, "It", finish="length"), sample(2, "", finish="stop")], 2, "none_whole"),
    ],
)
async def test_who_is_left(samples: list[Sample], index: int, why: str) -> None:
    roles = FakeRoles(samples, larger)
    assert await winner(build(Params(n=4)), roles) == Won(index, why)
    assert roles.asked == []


async def test_nobody_came() -> None:
    with pytest.raises(NoneLeft):
        await events(build(Params()), FakeRoles([], larger))


async def test_fewer_than_asked_for_still_play() -> None:
    roles = FakeRoles(answers(1, 2, 3), larger)
    *progress, won = await events(build(Params(n=16)), roles)
    assert progress == [Progress(1), Progress(2), Progress(3)]
    assert isinstance(won, Won) and won.index == 2


async def test_a_judge_s_prompt_has_its_bound() -> None:
    long = [sample(0, "x " * 50_000 + "\nThe answer is 1."), sample(1, "y " * 50_000 + "\nThe answer is 2.")]
    won, roles = await played(Params(n=2, room=8_000, criteria="c" * 4_000), long, larger)
    assert won.index == 1
    assert all(7_000 < len(each.prompt) <= 8_000 for each in roles.asked)


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=12),
    st.integers(0, 2**32),
    st.permutations(range(12)),
    st.integers(4, 200),
    st.sampled_from([0.1, 0.5, 2.0]),
)
async def test_whatever_the_judge_says_and_in_whatever_order_answers_end(
    numbers: list[int], seed: int, order: list[int], asks: int, z: float
) -> None:
    """Nobody meets twice, no more is asked than was told, and the same replies give the same winner."""
    found: list[tuple[Won, list[tuple[int, int]]]] = []
    params = Params(n=12, asks=asks, z=z)
    delays: list[Mapping[int, int]] = [{}, dict(enumerate(order))]
    for delay in delays:

        def replies(asked: Asked) -> Reply:
            chance = Random(f"{seed} {numbers_of(asked)} {'before this one' in asked.prompt}")
            return chance.choice(["Judgment: A", "Judgment: B", "Judgment: tie", "Well.", None])

        roles = FakeRoles(answers(*numbers), replies, delays=delay)
        won = await winner(build(params), roles)
        firsts = [numbers_of(each) for each in roles.asked if "before this one" not in each.prompt]
        assert len(set(firsts)) == len(firsts)
        assert {(second, first) for first, second in firsts} == set(firsts)
        assert len(roles.asked) <= build(params).asks <= asks
        found.append((won, sorted(firsts)))
    assert found[0] == found[1]


async def test_nothing_is_left_open() -> None:
    await left_open_by_nobody(build(Params(n=5)), lambda: FakeRoles(answers(1, 2, 3, 4, 5), larger))
    await left_open_by_nobody(build(Params(n=4)), lambda: FakeRoles(answers(1, 2, 3, 4), says("Hm.")))
    await left_open_by_nobody(build(Params(n=4)), lambda: FakeRoles(answers(1, 2, 3, 4), nobody))


def test_from_a_configuration() -> None:
    assert strategy("tournament", {"n": 6, "z": 1}).most == 6
    for wrong in ({"n": 1}, {"z": 0}, {"asks": 3}, {"rounds": 0}, {"unknown": 1}):
        with pytest.raises(ValueError, match="tournament: "):
            strategy("tournament", wrong)


def test_a_player() -> None:
    assert Player(sample(4, "x"), (4, 7), None).votes == 2
    assert msgspec.structs.replace(Champion(1, "close"), why="vote") == Champion(1, "vote")
