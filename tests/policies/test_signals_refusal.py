"""Whether an answer opens as refusals do."""

from __future__ import annotations

import pytest

from policies.signals.refusal import refusal
from policies.values.answer import Said, ToolCall, Wanted

REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I\u2019m sorry, but I can\u2019t assist with that request.",
    "I cannot provide instructions for this.",
    "Sorry, I can't do that.",
    "As an AI language model, I cannot feel pain.",
    "I'm unable to assist with that.",
    "Unfortunately, I cannot answer this.",
    "**I will not help** with that.",
    "Es tut mir leid, aber ich kann dabei nicht helfen.",
    "Je suis désolé, mais je ne peux pas répondre.",
    "Lo siento, pero no puedo ayudar con eso.",
    "\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5\u56de\u7b54\u3002",
    "<think>This is dangerous.</think>\n\nI can't help with that.",
)
ANSWERS = (
    "Paris.",
    "I can help with that: first, boil water.",
    "Sorry for the delay. The answer is 4.",
    "Unfortunately, the train was late that day.",
    "I can't wait to see it! Here is a plan:",
    "The error says: I'm sorry, but I can't open this file.",
    "Leider regnet es.",
    "Je suis arrivé hier.",
    "<think>I can't help with that.</think>Of course: 42.",
)


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals(text: str) -> None:
    assert refusal(Wanted(), Said(text, finish="stop")) == 0.0


@pytest.mark.parametrize("text", ANSWERS)
def test_answers(text: str) -> None:
    assert refusal(Wanted(), Said(text, finish="stop")) == 1.0


def test_the_engine_s_own_word() -> None:
    assert refusal(Wanted(), Said("", refused=True, finish="stop")) == 0.0
    assert refusal(Wanted(), Said("Well", finish="content_filter")) == 0.0


def test_without_text_it_says_nothing() -> None:
    assert refusal(Wanted(), Said("", (ToolCall("f", "{}"),), "tool_calls")) is None
    assert refusal(Wanted(), Said("<think>Hm", finish="length")) is None
