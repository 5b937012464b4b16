"""Strategies over backends without sockets: whoever leaves at whichever await leaves nothing, and who is quick has no advantage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.serving.call import Answer, Purpose, Receipt, UpstreamCall, Words
from gateway.serving.decoding import decoded, guess
from gateway.serving.state import Decoding, State
from gateway.wire.errors import ApiError
from gateway.wire.usage import Usage
from policies.decoding.registry import STRATEGIES, strategy
from policies.values.prompt import Turn
from tests.support.clock import run, timers
from tests.support.upstreams import Does, Engines, errand, made_state, real, receipt, way

TURNS = (Turn("user", "What is 2 + 2?"),)
ASKED: Mapping[str, tuple[dict[str, Any], str]] = {
    "best_of_n": ({"n": 4, "select": "judge"}, "Verdict: 3"),
    "budget_forcing": ({"cap": 8, "least": 5, "waits": 1, "tell": "estimate"}, "[[12]]"),
    "cascade": ({"check": "judge", "first": 3}, "Verdict: 1"),
    "genselect": ({"n": 4, "when": "always"}, "Verdict: 2"),
    "self_consistency": ({"n": 6, "first": 3}, ""),
    "synthesis": ({"n": 4, "when": "always"}, "It is 4."),
    "tournament": ({"n": 4}, "Verdict: A"),
}
"""Parameters with which a strategy asks all that it can, and what its roles say."""


def said(text: str, tokens: int = 3) -> bytes:
    """A chat completion, a completion, and the tokens of a text."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "text": text, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage, "tokens": [1, 2]}).encode()


def house(
    kind: str, texts: Sequence[str], delays: Sequence[float] = (), params: Mapping[str, Any] | None = None
) -> tuple[Engines, State, Decoding]:
    """Model A says these texts, one for each call, each after its delay, seconds; J plays all roles. Two calls to A run at once."""
    delays = delays or [0.0] * len(texts)
    script = [Does(after_s=delay, pieces=(said(text),)) for text, delay in zip(texts, delays, strict=True)]
    engines = Engines({"a": script, "j": [Does(pieces=(said(ASKED[kind][1]),))]})
    state = made_state(
        {"a": "A", "j": "J"}, {"engine": "vllm"}, models={"A": {"queue": {"slots": max(2, len(delays)) if any(delays) else 2}}}
    )
    made = strategy(kind, ASKED[kind][0] if params is None else params)
    return engines, state, Decoding(made, {role: real(state, "J") for role in made.needs.roles})


async def answered(engines: Engines, state: State, decoding: Decoding, whole: Receipt) -> Answer:
    asked = errand("A")
    return await decoded(decoding, way(engines), real(state, "A"), asked, whole, TURNS)


def nothing_left(engines: Engines, state: State, whole: Receipt, where: str) -> None:
    """Neither at work, nor waiting, nor unaccounted for."""
    assert len(asyncio.all_tasks()) == 1, where
    assert timers() == [], where
    assert [each.in_flight for each in state.backends.values()] == [0, 0], where
    assert not any(each.open for each in engines.replies), where
    admission = real(state, "A").admission
    assert admission is not None and (admission.running, admission.waiting) == (0, 0), where
    assert len(whole.calls) >= len(engines.sent), where  # whose deadline has passed sends nothing
    assert all(call.outcome is not None and call.ended is not None for call in whole.calls), where


@pytest.mark.parametrize("kind", STRATEGIES)
def test_whoever_leaves_in_any_turn_of_the_loop_leaves_nothing(kind: str) -> None:
    texts = ["It is 4", "It is 5", "It is 4.", "It is 6"]

    async def left_after(turns: int) -> bool:
        """Whether it was still at work."""
        engines, state, decoding = house(kind, texts)
        whole = receipt()
        task = asyncio.create_task(answered(engines, state, decoding, whole))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            assert task.result().status == 200
            nothing_left(engines, state, whole, "served")
            return False
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        nothing_left(engines, state, whole, f"left in turn {turns}")
        assert {each.outcome for each in whole.tried} <= {"cancelled", "lost"}
        return True

    turns = 0
    while run(left_after(turns)):
        turns += 1
    assert turns > 5


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("turns", [3, 9])
def test_whoever_is_cancelled_again_while_it_ends_leaves_nothing(kind: str, turns: int) -> None:
    async def main() -> None:
        engines, state, decoding = house(kind, ["It is 4", "It is 5", "It is 4.", "It is 6"])
        whole = receipt()
        task = asyncio.create_task(answered(engines, state, decoding, whole))
        for _ in range(turns):
            await asyncio.sleep(0)
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        assert task.cancelled()
        for _ in range(5):  # what was cancelled takes turns of its own to end
            await asyncio.sleep(0)
        nothing_left(engines, state, whole, "cancelled again and again")

    run(main())


PARAMS: Mapping[str, dict[str, Any]] = {
    "best_of_n": {"n": 5, "select": "judge"},
    "genselect": {"n": 5, "when": "always"},
    "self_consistency": {"n": 5, "stop": "never"},
    "tournament": {"n": 5},
}


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(PARAMS)),
    texts=st.lists(st.sampled_from(["It is 4", "The answer is 4.", "It is 5", "", "no idea"]), min_size=5, max_size=5),
    orders=st.lists(st.permutations([1.0, 2.0, 3.0, 4.0, 5.0]), min_size=2, max_size=3),
)
def test_the_same_candidates_have_the_same_winner_in_whatever_order_they_end(
    kind: str, texts: list[str], orders: list[Sequence[float]]
) -> None:
    async def won(delays: Sequence[float]) -> tuple[Any, ...]:
        engines, state, decoding = house(kind, texts, delays, PARAMS[kind])
        whole = receipt()
        body = json.loads((await answered(engines, state, decoding, whole)).body)
        nothing_left(engines, state, whole, "served")
        tried = sorted((each.index, each.outcome, each.score) for each in whole.tried)
        return body["choices"][0]["message"]["content"], body["usage"], whole.why, tried

    first, *others = [run(won(delays)) for delays in orders]
    assert all(other == first for other in others)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(STRATEGIES)),
    script=st.lists(st.sampled_from(["says", "status", "reset", "stall", "garbage", "empty"]), min_size=1, max_size=8),
    deadline=st.none() | st.floats(0.1, 5.0),
)
def test_whatever_candidates_do_there_is_an_answer_or_an_error_and_an_end(kind: str, script: list[str], deadline: float | None) -> None:
    does = {
        "says": Does(after_s=0.2, pieces=(said("It is 4"),)),
        "status": Does(503, after_s=0.1, pieces=(b"{}",)),
        "reset": Does(fails="reset"),
        "stall": Does(fails="stall"),
        "garbage": Does(after_s=0.3, pieces=(b'{"choices":"none"}',)),
        "empty": Does(pieces=(b'{"choices":[]}',)),
    }

    async def main() -> None:
        timeouts = {"first_byte_s": 3.0, "idle_s": 3.0, "total_s": 9.0}
        state = made_state(
            {"a": "A", "j": "J"}, {"timeouts": timeouts, "engine": "vllm"}, models={"A": {"queue": {"slots": 64}, "retry_wait_s": 0.0}}
        )
        engines = Engines({"a": [does[each] for each in script], "j": [does[each] for each in reversed(script)]})
        made = strategy(kind, ASKED[kind][0])
        decoding = Decoding(made, {role: real(state, "J") for role in made.needs.roles})
        whole = receipt()
        try:
            answer = await decoded(decoding, way(engines, deadline), real(state, "A"), errand("A"), whole, TURNS)
        except ApiError as error:
            assert error.status >= 500
            assert not any(each.outcome == "won" for each in whole.tried)
        else:
            won = sum(each.outcome == "won" for each in whole.tried)
            if answer.status == 503:  # as the backend says
                assert won == 0
            else:
                assert answer.status == 200
                assert json.loads(answer.body)["choices"][0]["message"]["content"] == "It is 4"
                assert won == 1 or (kind == "synthesis" and won == 0), "what was written of all candidates is none of them"
        if deadline is not None:
            assert asyncio.get_running_loop().time() <= deadline + 1e-6
        nothing_left(engines, state, whole, "ended")

    run(main())


@pytest.mark.parametrize("status", [200, 400])
def test_what_the_caller_is_told_is_heard_as_any_answer_is(status: int) -> None:
    """To be stored, and looked at: the winner, and no other candidate."""
    refusal = b'{"error":{"message":"no such thing","type":"BadRequestError","param":"x","code":400}}'

    async def main() -> None:
        engines, state, decoding = house("self_consistency", ["It is 4", "It is 5", "It is 4"], params={"n": 3, "stop": "never"})
        if status == 400:
            engines.scripts = {"a": [Does(400, pieces=(refusal,))]}
        whole = receipt()
        whole.words = Words(10_000, b"")
        answer = await answered(engines, state, decoding, whole)
        assert answer.status == status
        assert bytes(whole.words.answer or b"") == answer.body
        assert b"It is 5" not in answer.body

    run(main())


def test_what_cancelled_candidates_sampled_is_guessed_at_the_pace_of_the_others() -> None:
    """40 tokens in 4 seconds; so 15 in one and a half, and no more than it may have. Of a model of which nobody told, nothing."""

    def call(took_s: float, tokens: int | None, model: str = "A", purpose: Purpose = "candidate") -> UpstreamCall:
        usage = None if tokens is None else Usage(5, 2, tokens)
        return UpstreamCall("a", model, 10.0, purpose, ended=10.0 + took_s, outcome="cancelled" if tokens is None else "ok", usage=usage)

    def guessed(most: int | None) -> list[Usage | None]:
        calls = [call(1.0, 10), call(3.0, 30), call(1.5, None), call(1.5, None, model="B"), call(1.5, None, purpose="judge")]
        guess(calls, most)
        assert [each.estimated for each in calls] == [False, False, True, False, False]
        return [each.usage for each in calls[2:]]

    assert guessed(None) == [Usage(5, 2, 15), None, None]
    assert guessed(12) == [Usage(5, 2, 12), None, None]


def test_a_cancelled_candidate_is_not_taken_for_a_question() -> None:
    """20 tokens in 2 seconds, so 20 in 2; a judge or a synthesizer of the same model, later, read far more and has another pace."""

    def call(started: float, took_s: float, usage: Usage | None, purpose: Purpose = "candidate") -> UpstreamCall:
        outcome = "cancelled" if usage is None else "ok"
        return UpstreamCall("a", "A", started, purpose, ended=started + took_s, outcome=outcome, usage=usage)

    cancelled = call(0.0, 2.0, None)
    guess([call(0.0, 2.0, Usage(30, 0, 20)), cancelled, call(2.0, 1.0, Usage(4_000, 0, 1), "judge")], None)
    assert cancelled.usage == Usage(30, 0, 20)

    cancelled = call(0.0, 2.0, None)
    guess([call(0.0, 2.0, Usage(30, 0, 20)), cancelled, call(2.0, 2.0, Usage(4_000, 0, 20))], None)
    assert cancelled.usage == Usage(30, 0, 20), "whose prompt is that of the first, for questions come after candidates"
