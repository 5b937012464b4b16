"""The seam of decoding: a strategy, and all that it sees of the world.

A strategy asks for candidates and chooses one of them. It knows no engine: roles sample, and close what still runs when nobody waits for it
any more.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from models.response import Response
from policies.values.answer import Said
from policies.values.prompt import Turn

SAMPLER: Final = "sampler"
"""The role of the plan's own model."""
REWARD: Final = "reward"
"""The role of a model that scores answers."""
VERIFIER: Final = "verifier"
"""The role of the operator's own service that checks answers."""


class Sample(msgspec.Struct, frozen=True):
    """A candidate that has ended. index: 0, 1, ... in the order in which they began. tokens: that were sampled. logprobs: of its tokens, as
    the engine tells of them; None: it does not."""

    index: int
    said: Said
    tokens: int = 0
    logprobs: Any = None


class Progress(msgspec.Struct, frozen=True):
    """A candidate more has ended."""

    ended: int


class Written(msgspec.Struct, frozen=True):
    """What a model has written on. finish: `stop` where it ended by itself or at a stop, `length` where it was cut. tokens: of it."""

    text: str
    finish: str | None
    tokens: int


class Won(msgspec.Struct, frozen=True):
    """The end. index: of the sample that is the answer. why: in a word. scores: by index, whatever it was chosen by. places: of each
    verdict of a judge who saw several side by side, how many, and the place of the one that it chose, from 1."""

    index: int
    why: str
    scores: Mapping[int, float] = {}
    places: Sequence[tuple[int, int]] = ()


class NoneLeft(Exception):
    """No candidate came."""


class Unanswered(Exception):
    """A role was asked, and failed. It says why in a word."""


class Task(msgspec.Struct, frozen=True):
    """What the caller asked for. turns: all that was said, in order. seed: the caller's, or one made for this request: all chance that a
    strategy uses comes of it, so that the same request repeats. most: tokens that an answer may have, thoughts too; None: nobody bounds
    it."""

    turns: Sequence[Turn]
    seed: int = 0
    most: int | None = None


class Roles(Protocol):
    """Who does the work for one request. Roles are configured; `sampler`, the plan's own model, is always there, and plays those that are
    not."""

    @property
    def task(self) -> Task:
        """The request."""
        ...

    def sample(self, n: int, role: str = SAMPLER) -> AsyncGenerator[Sample, None]:
        """n candidates more that answer the request, all at once, each as it ends; of those that fail, nothing. Closing it cancels those
        that still run."""
        ...

    async def ask(self, role: str, prompt: str, most: int) -> Sample:
        """What the role says to one message of a user, in at most so many tokens; it may be chosen as the answer as any sample. Raises
        Unanswered."""
        ...

    @property
    def writes(self) -> bool:
        """Whether `write` can be had of the plan's engines, for this request: one for text alone."""
        ...

    @property
    def bounds_thoughts(self) -> bool:
        """Whether the plan's engines keep to `Needs.thinking`."""
        ...

    async def write(self, text: str, most: int | None, stop: Sequence[str] = ()) -> Written:
        """What the plan's model writes after the prompt and this text, as if both were its own; most: tokens, None: as many as it can hold.
        It ends before a stop, which are the caller's where none are given. Raises Unanswered."""
        ...

    def written(self, thought: str, said: str, finish: str | None) -> Sample:
        """What was written, as the candidate."""
        ...

    def tell(self, sentence: str) -> None:
        """Adds this to the caller's last message, for all that is sampled or written from now on."""
        ...

    def room(self, role: str, most: int, wished: int) -> int:
        """Characters of a message to the role: as many as are wished for, or what its model can read beside a reply of so many tokens."""
        ...

    async def score(self, role: str, samples: Sequence[Sample]) -> list[float | None]:
        """How good `reward` or `verifier` finds each of these, the higher the better, all asked at once. None: it failed, or says nothing
        of that one. The scale of `reward` is its model's; of `verifier` it is 0 to 1."""
        ...


class Question(msgspec.Struct, frozen=True):
    """A question, at most. role: that it goes to. room: characters of its message. most: tokens of its reply."""

    role: str
    room: int
    most: int


class Needs(msgspec.Struct, frozen=True):
    """What a strategy needs. logprobs: of the tokens of each sample; top: alternatives of each token, 0 if none. roles: that it asks.
    scorers: that it has samples scored by; nobody else plays these. thinking: tokens of thought that a sample may have, where
    its engine bounds them by itself; None: as many as it will. writes: that it writes on, where that can be had. asked: what
    each of its questions is; None: it has none, or a service of the operator's answers them. mixed: its candidates come of several models,
    so that they differ at temperature 0, too."""

    logprobs: bool = False
    top: int = 0
    roles: frozenset[str] = frozenset()
    scorers: frozenset[str] = frozenset()
    thinking: int | None = None
    writes: bool = False
    asked: Question | None = None
    mixed: bool = False


class Strategy(Protocol):
    """Params, and how they are used. It holds nothing of a request."""

    @property
    def needs(self) -> Needs:
        """What has to be there."""
        ...

    @property
    def most(self) -> int:
        """Candidates in the worst case, at least 1."""
        ...

    @property
    def asks(self) -> int:
        """Questions to roles in the worst case, scores too."""
        ...

    @property
    def response(self) -> Response | None:
        """What it makes of the quality of one answer of the plan's model; None: no curve is known."""
        ...

    def run(self, roles: Roles) -> AsyncGenerator[Progress | Won, None]:
        """Progress, any number of times, then the end. Raises NoneLeft."""
        ...


_CUT: Final = frozenset(("length", "content_filter", "abort", "error"))


def whole(sample: Sample) -> bool:
    """Whether it came to its own end, and says something."""
    said = sample.said
    return said.finish not in _CUT and not said.refused and bool(said.tool_calls or said.spoken.strip())
