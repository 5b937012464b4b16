"""GenSelect: who is chosen, when the judge is asked, and what becomes of a judge that fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import permutations

import msgspec
import pytest

from policies.decoding.genselect import GenSelect, Params, build
from policies.decoding.registry import strategy
from policies.decoding.strategy import Needs, NoneLeft, Progress, Question, Sample, Task, Won
from policies.values.answer import Said, ToolCall
from policies.values.prompt import Turn
from tests.support.roles import Asked, FakeRoles, Reply, events, left_open_by_nobody, nobody, sample, says, winner

SPLIT = [sample(0, "The answer is 41."), sample(1, "The answer is 42."), sample(2, "The answer is 41."), sample(3, "So, the answer is 42.")]
SHOWN = re.compile(r"^=== \w+ answer (\d+)\n(.*?)\n(?==== )", re.MULTILINE | re.DOTALL)


def likes(text: str, otherwise: Reply = None) -> Callable[[Asked], Reply]:
    """A judge that chooses the first answer that says so."""

    def replies(asked: Asked) -> Reply:
        places = [place for place, shown in SHOWN.findall(asked.prompt) if text in shown]
        return f"Judgment: {places[0]}" if places else otherwise

    return replies


async def test_the_judge_chooses_where_the_vote_is_split() -> None:
    for seed in range(10):
        roles = FakeRoles(SPLIT, likes("So, the answer"), task=Task((Turn("user", "6 x 7?"),), seed))
        *before, won = await events(build(Params(n=4)), roles)
        assert before == [*map(Progress, (1, 2, 3, 4))] and isinstance(won, Won)
        assert (won.index, won.why, won.scores) == (3, "judge", {0: 0.0, 1: 1.0, 2: 0.0, 3: 1.0})
        assert [(each.role, each.most) for each in roles.asked] == [("judge", 4_096)]
        assert "[user]\n6 x 7?" in roles.asked[0].prompt


async def test_it_is_not_asked_where_all_say_the_same() -> None:
    samples = [sample(0, "The answer is 42."), sample(1, "Hard to tell,\nit may be anything."), sample(2, "It is 7 times 6. Answer: 42")]
    roles = FakeRoles(samples, likes("Hard"))
    assert await winner(build(Params(n=3)), roles) == Won(0, "unanimous", {0: 2.0, 2: 2.0})
    assert roles.asked == []
    assert (await winner(build(Params(n=3, when="always")), FakeRoles(samples, likes("Hard")))).index == 1


async def test_answers_that_cannot_vote_are_compared() -> None:
    """One vote of three decides nothing."""
    poems = [sample(0, "Roses are red\nand so on."), sample(1, "Violets are blue\nand so on and on."), sample(2, "The answer is 42.")]
    won = await winner(build(Params(n=3)), FakeRoles(poems, likes("Violets")))
    assert (won.index, won.why, won.scores) == (1, "judge", {0: 0.0, 1: 1.0, 2: 0.0})
    assert [shown for shown, _ in won.places] == [3], "the judge saw three, once"


async def test_tools_vote_and_are_shown() -> None:
    def calls(index: int, arguments: str) -> Sample:
        return Sample(index, Said("", (ToolCall("add", arguments),), "tool_calls"))

    same = [calls(0, '{"a": 1, "b": 2}'), calls(1, '{"b":2,"a":1.0}')]
    assert (await winner(build(Params(n=2)), FakeRoles(same))).why == "unanimous"
    other = [calls(0, '{"a": 1, "b": 2}'), calls(1, '{"a": 3}')]
    assert (await winner(build(Params(n=2)), FakeRoles(other, likes('add({"a": 3})')))).index == 1


@pytest.mark.parametrize("reply", ["7", "0", "-1", "none", "2 or 3", "<think>2, no: 3", "<think>2</think>", "", "Judgment: 5", None])
async def test_a_judge_that_fails_leaves_it_to_the_vote(reply: str | None) -> None:
    samples = [
        sample(0, "The answer is 41."),
        sample(1, "The answer is 42."),
        sample(2, "Answer: 42"),
        sample(3, "Who knows?\nNot me, sorry."),
    ]
    roles = FakeRoles(samples, says(reply))
    assert await winner(build(Params(n=4)), roles) == Won(1, "judge_failed", {0: 1.0, 1: 2.0, 2: 2.0})
    assert len(roles.asked) == (1 if reply is None else 2)


async def test_and_without_votes_to_the_first() -> None:
    poems = [sample(0, "Roses are red\nand so on.", finish="length"), sample(1, "Violets are\nblue."), sample(2, "Grass is\ngreen.")]
    assert await winner(build(Params(n=3)), FakeRoles(poems, nobody)) == Won(1, "judge_failed", {})


async def test_what_stands_around_the_number_is_fine() -> None:
    roles = FakeRoles(SPLIT, says('<think>Judgment: 1</think>"2"'))
    won = await winner(build(Params(n=4)), roles)
    assert SPLIT[won.index].said.text == SHOWN.findall(roles.asked[0].prompt)[1][1]


async def test_thoughts_are_not_shown_and_cut_ones_are_no_answers() -> None:
    samples = [
        sample(0, "<think>It may be 1.</think>The answer is 41."),
        sample(1, "It may be 2.\n</think>\nThe answer is 42."),
        sample(2, "<think>It may be 3", finish="length"),
        sample(3, "[THINK]It may be 4"),
        Sample(4, Said("", finish="stop", thought=True)),
    ]
    roles = FakeRoles(samples, likes("42"))
    won = await winner(build(Params(n=5)), roles)
    assert (won.index, won.why, won.scores) == (1, "judge", {0: 0.0, 1: 1.0})
    assert "It may be" not in roles.asked[0].prompt
    assert [shown for _, shown in sorted(SHOWN.findall(roles.asked[0].prompt), key=lambda each: each[1])] == [
        "The answer is 41.",
        "The answer is 42.",
    ]


async def test_fewer_than_were_asked_for() -> None:
    roles = FakeRoles(SPLIT[1:3], likes("41"))
    assert (await winner(build(Params(n=8)), roles)).index == 2
    assert roles.sampled == [("sampler", 8)]
    assert await winner(build(Params(n=8)), FakeRoles(SPLIT[3:])) == Won(3, "only_one")
    cut = [sample(2, "The answer is", finish="length"), sample(1, "<think>The", finish="length")]
    assert await winner(build(Params(n=8)), FakeRoles(cut)) == Won(1, "none_whole")
    assert await winner(build(Params(n=8)), FakeRoles([*cut, SPLIT[3]])) == Won(3, "only_one")
    with pytest.raises(NoneLeft):
        await winner(build(Params(n=8)), FakeRoles())


async def test_of_many_the_answer_chosen_most_often_wins() -> None:
    """Of 12, six hands of 4: each is shown twice. Three say 42, which is chosen wherever it is seen; elsewhere 40 is."""
    samples = [sample(index, f"Answer: {42 if index in (2, 5, 8) else 40}") for index in range(12)]
    winners = set()
    for seed in range(10):
        roles = FakeRoles(samples, lambda asked: likes("42", likes("40")(asked))(asked), task=Task((Turn("user", "?"),), seed))
        won = await winner(build(Params(n=12, group=4, repeats=6)), roles)
        hands = [[text for _, text in SHOWN.findall(each.prompt)] for each in roles.asked]
        assert [len(hand) for hand in hands] == [4] * 6 and roles.most_open == 6
        assert sum(hand.count("Answer: 42") for hand in hands) == 6
        chosen = sum("Answer: 42" in hand for hand in hands)
        assert won.why == "judge"
        assert won.scores == {index: float(chosen if index in (2, 5, 8) else 6 - chosen) for index in range(12)}
        assert (won.index in (2, 5, 8)) == (chosen > 3)  # of equals, 40 has more votes
        winners.add(samples[won.index].said.text)
    assert "Answer: 42" in winners  # against the vote


async def test_of_choices_that_fail_the_others_count() -> None:
    samples = [sample(index, f"Answer: {40 + index % 3}") for index in range(12)]

    def replies(asked: Asked) -> Reply:
        return None if asked.nth < 3 else likes("Answer: 42", likes("Answer: 41")(asked))(asked)

    won = await winner(build(Params(n=12, group=6, repeats=4)), FakeRoles(samples, replies))
    assert samples[won.index].said.text == "Answer: 42" and won.scores[won.index] == 1.0


async def test_of_equals_the_one_with_more_votes() -> None:
    """Two hands of two from three: each answer is chosen once."""
    samples = [sample(0, "Answer: 40"), sample(1, "Answer: 42"), sample(2, "Answer: 42")]
    for seed in range(20):
        roles = FakeRoles(samples, says("Judgment: 1"), task=Task((Turn("user", "?"),), seed))
        won = await winner(build(Params(n=3, group=2, repeats=2)), roles)
        firsts = [SHOWN.findall(each.prompt)[0][1] for each in roles.asked]
        assert samples[won.index].said.text == ("Answer: 40" if firsts == ["Answer: 40"] * 2 else "Answer: 42")


async def test_whoever_is_quick_has_no_advantage() -> None:
    outcomes = []
    for order in permutations(range(4)):
        roles = FakeRoles(SPLIT, says("Judgment: 2"), delays=dict(enumerate(order)))
        outcomes.append((await winner(build(Params(n=4)), roles), [each.prompt for each in roles.asked]))
    assert len(outcomes) == 24 and all(each == outcomes[0] for each in outcomes)


async def test_the_seed_draws_the_order() -> None:
    def prompts(seed: int) -> FakeRoles:
        return FakeRoles(SPLIT, says("Judgment: 2"), task=Task((Turn("user", "6 x 7?"),), seed))

    seen = set()
    for seed in range(30):
        one, same = prompts(seed), prompts(seed)
        assert await winner(build(Params(n=4)), one) == await winner(build(Params(n=4)), same)
        assert one.asked == same.asked
        seen.add(one.asked[0].prompt)
    assert len(seen) > 10


async def test_the_prompt_fits_its_room() -> None:
    samples = [sample(index, f"{'step ' * 20_000}\nAnswer: {index}") for index in range(16)]
    roles = FakeRoles(samples, says("none"), task=Task((Turn("user", "x" * 50_000 + "?"),), 1))
    await winner(build(Params(n=16, group=16, room=10_000)), roles)
    assert len(roles.asked) == 2
    for asked in roles.asked:
        assert len(asked.prompt) <= 10_000
        assert all(f"Answer: {index}" in asked.prompt for index in range(16))


@pytest.mark.parametrize("params", [Params(n=4), Params(n=4, group=2, repeats=3)])
@pytest.mark.parametrize("reply", ["Judgment: 1", "none", None])
async def test_nothing_is_left_open(params: Params, reply: str | None) -> None:
    await left_open_by_nobody(GenSelect(params), lambda: FakeRoles(SPLIT, says(reply)))


def test_what_it_needs() -> None:
    made = strategy("genselect", {"n": 16, "group": 16})
    assert (made.needs, made.most, made.asks) == (Needs(roles=frozenset({"judge"}), asked=Question("judge", 48_000, 4_096)), 16, 2)
    made = strategy("genselect", {"n": 17, "group": 16, "repeats": 5})
    assert (made.most, made.asks) == (17, 10)


@pytest.mark.parametrize(
    "params", [{"n": 1}, {"n": 65}, {"group": 1}, {"group": 17}, {"repeats": 0}, {"when": "never"}, {"room": 10}, {"m": 1}]
)
def test_what_is_out_of_bounds(params: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="genselect"):
        strategy("genselect", params)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(params, Params)
