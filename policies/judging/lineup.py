"""Answers as a judge sees them beside the request: in an order drawn by lot, without names or thoughts, and all together in the room that
there is."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

import msgspec

from policies.decoding.strategy import Sample, whole
from policies.judging.conversation import LEFT_OUT, conversation
from policies.values.answer import Said
from policies.values.prompt import Turn
from policies.values.thinking import spoken

LONGEST: Final = 16_384
"""Characters of one answer, at most."""
_REQUEST: Final = 0.4
"""Of the room; more where the answers leave some."""


class Lineup(msgspec.Struct, frozen=True):
    """indices: of the samples, in the order in which they are shown. texts: of each, as it is shown."""

    indices: tuple[int, ...]
    texts: tuple[str, ...]

    def at(self, place: int) -> int:
        """Index of the sample that is shown there. place: from 1 on."""
        if place < 1:
            raise ValueError("places begin with 1")
        return self.indices[place - 1]


def judged(samples: Sequence[Sample]) -> list[Sample]:
    """Those that a judge can be shown, by their index: they came to their end, and say something besides thoughts."""
    return sorted((each for each in samples if whole(each) and shown(each.said)), key=lambda each: each.index)


def lined_up(samples: Sequence[Sample], room: int, chance: Random) -> Lineup:
    """All of them, shuffled. samples: in an order that does not depend on who was quick. room: characters of all texts together."""
    order = chance.sample(samples, len(samples))
    return Lineup(tuple(each.index for each in order), fitted([shown(each.said) for each in order], room))


def beside(turns: Sequence[Turn], samples: Sequence[Sample], room: int, chance: Random) -> tuple[str, Lineup]:
    """The request, and all of them. room: characters of both together."""
    wanted = sum(min(len(shown(each.said)), LONGEST) for each in samples)
    request = conversation(turns, max(int(_REQUEST * room), room - wanted))
    return request, lined_up(samples, room - len(request), chance)


def hands(samples: Sequence[Sample], size: int, times: int, chance: Random) -> list[list[Sample]]:
    """So many random subsets, dealt from one shuffled deck after another, so that each sample is in about as many as any other."""
    deck: list[Sample] = []
    dealt = []
    for _ in range(times):
        if len(deck) < size:
            left = {each.index for each in deck}
            deck += sorted(chance.sample(samples, len(samples)), key=lambda each: each.index in left)  # nobody is in a hand twice
        hand, deck = deck[:size], deck[size:]
        dealt.append(sorted(hand, key=lambda each: each.index))
    return dealt


def shown(said: Said) -> str:
    """What is judged of an answer: what it says besides its thoughts, and the tools that it calls; empty: nothing."""
    calls = [f"[calls {call.name}({call.arguments})]" for call in said.tool_calls]
    return "\n".join(part for part in ((spoken(said.text) or "").strip(), *calls) if part)


def fitted(texts: Sequence[str], room: int, longest: int = LONGEST) -> tuple[str, ...]:
    """The texts, each of at most `longest` characters and all together of at most `room`. What is cut keeps its end, where the answer is;
    long ones are cut first, all to the same length."""
    cap, left = longest, room
    for number, length in enumerate(sorted(map(len, texts))):
        share = left // (len(texts) - number)
        if length > share:  # so are all that follow
            cap = min(cap, share)
            break
        left -= length
    return tuple(ended(text, max(0, cap)) for text in texts)


def ended(text: str, most: int) -> str:
    """The end of a text that is longer than so many characters."""
    if len(text) <= most:
        return text
    kept = most - len(LEFT_OUT)
    return LEFT_OUT + text[-kept:] if kept > 0 else text[len(text) - most :]
