"""What a right answer costs, and recorded answers through real strategies: figures worked out by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from policies.bench import attempts, recordings
from policies.bench.attempts import Attempt, Price, wilson
from policies.bench.recordings import Recorded
from policies.bench.tasks import FAMILIES, ITEMS, items
from policies.values.answer import Said


def attempt(right: bool, cost: float, weight: float = 1.0) -> Attempt:
    return Attempt("sums", 0, right, 1, 10, 2, cost, weight=weight)


def test_a_right_answer_costs_all_attempts() -> None:
    # 4 attempts at 3 USD, one right: 12 USD; of the plain ones 2 of 4 are right, at 1 USD: 2 USD.
    dear = [attempt(right, 3.0) for right in (True, False, False, False)]
    plain = [attempt(right, 1.0) for right in (True, True, False, False)]
    row = attempts.row(dear, plain, timed=False)
    assert (row["right"], row["USD per million right"], row["x single"]) == (0.25, 12e6, 6.0)
    assert attempts.cost_of_pass([attempt(False, 1.0)]) is None


def test_a_question_attempted_twice_is_one_question() -> None:
    row = attempts.row([attempt(True, 1.0, 0.5), attempt(False, 1.0, 0.5)], [attempt(True, 1.0)], timed=False)
    assert (row["right"], row["USD per million right"], row["x single"]) == (0.5, 2e6, 2.0)
    assert (row["from"], row["to"]) == pytest.approx(wilson(0.5, 1.0))


def test_intervals_are_wilsons() -> None:
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15 / 148, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_prices_are_of_a_million_tokens() -> None:
    assert Price(2.0, 6.0).cost(500_000, 250_000) == 2.5


def test_there_are_forty_questions_of_each_family() -> None:
    found = items()
    assert len(found) == 6 * ITEMS == 240
    assert len({(item.family, item.turns) for item in found}) == 240
    for item in found:
        assert all(item.right(Said(answer, finish="stop")) for answer in item.accepted), item
        assert not item.right(Said("perhaps", finish="stop"))
    assert {item.number for item in items(3)} == {0, 1, 2}


def test_sums_are_sums() -> None:
    for family, operation in (("sums", int.__add__), ("products", int.__mul__), ("long_sums", int.__add__)):
        for question, answer in FAMILIES[family][2]:
            left, _, right = question.split()
            assert operation(int(left), int(right)) == int(answer)


@pytest.mark.parametrize(("said", "right"), [("Paris.", True), ("paris", True), ("The capital of France is Paris.", True), ("Lyon", False)])
def test_answers_are_compared_as_votes_are(said: str, right: bool) -> None:
    france = next(item for item in items() if item.family == "capitals")
    assert france.right(Said(said, finish="stop")) is right
    assert not france.right(Said("Paris", finish="length")), "cut"


def recorded(model: str, text: str, logprob: float, top: float) -> Recorded:
    """An answer of two tokens to `1 + 1 =`. top: log-probability of either alternative: the nearer to 0, the less confident."""
    return Recorded(model, "sums", 0, 10, 2, "stop", text, (logprob, logprob), ((top, top), (top, top)))


def test_strategies_choose_among_what_was_recorded(tmp_path: Path) -> None:
    # Strong: `3` three times, unlikely; `2`, which is right, once, likely and confident. Weak: `2`, with a chance of 1 / (1 + exp(-2.4)).
    strong = [*[recorded("strong", "3", -2.0, -0.7)] * 3, recorded("strong", "2", -0.1, -6.0)]
    weak = [recorded("weak", "2", -0.1, -3.0)] * 4
    file = tmp_path / "recordings.jsonl.gz"
    recordings.write(file, [*strong, *weak])
    assert recordings.read(file) == [*strong, *weak]
    found = asyncio.run(recordings.attempted(recordings.read(file), orders=4))

    def share(way: str) -> float:
        return sum(each.weight for each in found[way] if each.right)

    assert share("vote of 8") == 0.0, "three of four say 3"
    assert share("best of 4, logprob") == 1.0, "the likeliest is right"
    assert share("cascade, logprob") == 1.0, "1 / (1 + exp(-(3 - 0.6))) = 0.92 is above 0.75, so the weak model's answer is kept"
    assert share("cascade, agreement") == 1.0
    assert {each.calls for each in found["cascade, agreement"]} == {3}
    assert {(each.calls, each.prompt, each.tokens) for each in found["vote of 8"]} == {(4, 40, 8)}, "no more are there"
    # 4 answers of the strong model: 40 tokens read at 0.02 and 8 written at 0.06 USD per million.
    assert found["vote of 8"][0].cost == pytest.approx((40 * 0.02 + 8 * 0.06) / 1e6)
    assert found["cascade, logprob"][0].cost == pytest.approx((10 * 0.005 + 2 * 0.015) / 1e6)
    assert share("cisc") == 1.0, "the softmax of -0.1 is exp(1.9) = 6.7 times that of -2, more than 3"
    assert share("deepconf") == 1.0, "6.0 outweighs 3 x 0.7"
