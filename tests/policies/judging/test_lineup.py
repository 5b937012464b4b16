"""Answers as a judge sees them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from policies.decoding.strategy import Sample
from policies.judging.lineup import Lineup, beside, ended, fitted, hands, judged, lined_up, shown
from policies.values.answer import Said, ToolCall
from policies.values.prompt import Turn
from tests.support.roles import sample


def test_only_whole_answers_can_be_judged() -> None:
    samples = [
        sample(5, "five"),
        sample(1, "<think>one"),
        sample(2, "two", finish="length"),
        sample(3, " "),
        sample(4, "[THINK]four[/THINK] "),
        Sample(6, Said("six", refused=True)),
        sample(0, "zero"),
    ]
    assert [each.index for each in judged(samples)] == [0, 5]


def test_thoughts_are_not_shown_and_calls_are() -> None:
    assert shown(Said("<think>Is it 3?</think>\nIt is 4.\n")) == "It is 4."
    assert shown(Said("thinking\n</think>\nIt is 4.")) == "It is 4."
    assert shown(Said("Write `<think>` first.")) == "Write `<think>` first."
    assert shown(Said("", (ToolCall("add", '{"a": 1}'), ToolCall("end", "")))) == '[calls add({"a": 1})]\n[calls end()]'
    assert shown(Said("<think>I am not done")) == ""


def test_the_order_comes_of_the_seed() -> None:
    samples = [sample(index, f"text {index}") for index in range(8)]

    def lineup(seed: int) -> Lineup:
        return lined_up(samples, 1_000, Random(seed))

    one = lineup(3)
    assert one == lineup(3)
    assert sorted(one.indices) == list(range(8))
    assert one.texts == tuple(f"text {index}" for index in one.indices)
    assert [one.at(place) for place in range(1, 9)] == list(one.indices)
    firsts = Counter(lineup(seed).at(1) for seed in range(800))
    assert set(firsts) == set(range(8)) and max(firsts.values()) < 150  # 100 each, give or take 5 deviations of 9.4
    with pytest.raises(ValueError, match="begin with 1"):
        one.at(0)


def test_all_of_it_fits_and_every_end_is_there() -> None:
    chance = Random(11)
    for _ in range(100):
        samples = [sample(index, "a" * chance.randrange(1, 30_000) + f"\nIt is {index}.") for index in range(chance.randrange(2, 17))]
        turns = [Turn(chance.choice(("system", "user")), "q" * chance.randrange(1, 20_000)) for _ in range(chance.randrange(1, 6))]
        room = chance.randrange(4_000, 60_000)
        request, lineup = beside(turns, samples, room, chance)
        assert len(request) + sum(map(len, lineup.texts)) <= room
        assert all(text.endswith(f"It is {index}.") for index, text in zip(lineup.indices, lineup.texts, strict=True))
        assert request.endswith("q\n")


def test_a_long_request_has_the_room_that_the_answers_leave() -> None:
    request, _ = beside((Turn("user", "q" * 900),), [sample(0, "a" * 40), sample(1, "b" * 30)], 1_000, Random(0))
    assert "q" * 900 in request


def test_what_is_cut_keeps_its_end() -> None:
    assert ended("0123456789", 10) == "0123456789"
    assert ended("0123456789", 9) == "[...]\n789"
    assert ended("0123456789", 6) == "456789"
    assert ended("0123456789", 0) == ""


def test_long_texts_are_cut_first() -> None:
    """30 characters: 4 for the short one, 13 for each of the others."""
    assert fitted(["short"[:4], "a" * 20, "b" * 13], 30) == ("shor", "[...]\n" + "a" * 7, "b" * 13)
    assert fitted(["a" * 20, "b" * 20], 100, longest=10) == ("[...]\naaaa", "[...]\nbbbb")
    assert fitted(["ab", "cd"], 0) == ("", "")
    assert fitted([], 10) == ()


def test_they_never_take_more_than_the_room() -> None:
    chance = Random(5)
    for _ in range(300):
        texts = ["x" * chance.randrange(0, 200) for _ in range(chance.randrange(1, 17))]
        room = chance.randrange(0, 1_500)
        texts_fitted = fitted(texts, room, longest=150)
        assert sum(map(len, texts_fitted)) <= room
        if sum(min(len(text), 150) for text in texts) <= room:
            assert [len(text) for text in texts_fitted] == [min(len(text), 150) for text in texts]


def test_hands_show_each_about_as_often() -> None:
    samples = [sample(index, "x") for index in range(20)]
    dealt = hands(samples, 8, 10, Random(1))
    assert len(dealt) == 10
    for hand in dealt:
        assert len({each.index for each in hand}) == 8
        assert [each.index for each in hand] == sorted(each.index for each in hand)
    assert set(Counter(each.index for hand in dealt for each in hand).values()) == {4}  # 80 places for 20
    assert hands(samples, 8, 10, Random(1)) == dealt
    assert hands(samples, 8, 10, Random(2)) != dealt
