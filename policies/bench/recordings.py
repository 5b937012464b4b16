"""Recorded answers of real small models, and strategies replayed on them.

The file has a line of JSON for each answer (Recorded). A strategy runs as it serves; its samples are the recorded ones in some order, and
whoever it asks a question has nothing recorded.
"""

from __future__ import annotations

import gzip
import hashlib
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import msgspec

from policies.answers.confidence import read as read_logprobs
from policies.bench.attempts import Attempt, Price
from policies.bench.tasks import Item, items
from policies.decoding.cascade import STRONG
from policies.decoding.registry import SINGLE, strategy
from policies.decoding.single import Single
from policies.decoding.strategy import SAMPLER, Sample, Strategy, Task, Unanswered, Won, Written
from policies.values.answer import Said

FILE: Final = Path(__file__).parent / "data" / "decoding" / "recordings.jsonl.gz"
TOP: Final = 5
"""Alternatives of each token."""
_DIGITS: Final = 3
CHEAP: Final = "weak"
DEAR: Final = "strong"
PRICES: Final[Mapping[str, Price]] = {DEAR: Price(0.02, 0.06), CHEAP: Price(0.005, 0.015)}
"""Of the recorded models, as `trilemma up` has them: made up."""
ORDERS: Final = 8
"""In which the samples of a question are taken."""

WAYS: Final[Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "single": (DEAR, SINGLE, {}),
    "weak": (CHEAP, SINGLE, {}),
    "vote of 8": (DEAR, "self_consistency", {"n": 8, "stop": "never"}),
    "vote, default stop": (DEAR, "self_consistency", {"n": 8}),
    "cisc": (DEAR, "self_consistency", {"n": 8, "stop": "never", "vote": "cisc"}),
    "deepconf": (DEAR, "self_consistency", {"n": 8, "stop": "never", "vote": "deepconf"}),
    "best of 4, logprob": (DEAR, "best_of_n", {"n": 4, "select": "logprob"}),
    "best of 8, logprob": (DEAR, "best_of_n", {"n": 8, "select": "logprob"}),
    "vote of 8, weak": (CHEAP, "self_consistency", {"n": 8, "stop": "never"}),
    "best of 8, logprob, weak": (CHEAP, "best_of_n", {"n": 8, "select": "logprob"}),
    "cascade, logprob": (CHEAP, "cascade", {"check": "logprob"}),
    "cascade, agreement": (CHEAP, "cascade", {"check": "agreement"}),
}
"""Way to answer -> the model of its plan, its strategy, and that one's parameters. A cascade's strong model is the other one."""


class Recorded(msgspec.Struct, frozen=True):
    """An answer. model: `strong` or `weak`. prompt: tokens that were read. logprobs: of its tokens. top: of the likeliest alternatives at
    each. tokens: that were sampled; the one that ends an answer is among them, and has a log-probability."""

    model: str
    family: str
    number: int
    prompt: int
    tokens: int
    finish: str | None
    text: str
    logprobs: tuple[float, ...] = ()
    top: tuple[tuple[float, ...], ...] = ()

    @property
    def said(self) -> Said:
        """As strategies see it."""
        return Said(self.text, finish=self.finish)

    def sample(self, index: int) -> Sample:
        """As the candidate with that index."""
        content = [
            {"logprob": chosen, "top_logprobs": [{"logprob": each} for each in tops]}
            for chosen, tops in zip(self.logprobs, self.top, strict=True)
        ]
        return Sample(index, self.said, self.tokens, {"content": content} if content else None)


def recorded(model: str, item: Item, said: Said, usage: tuple[int, int], logprobs: Any) -> Recorded:
    """What is kept of an answer. usage: tokens that were read, and that were sampled. logprobs: as the engine tells of them."""
    known = read_logprobs(logprobs)
    chosen, top = ((), ()) if known is None else known
    return Recorded(
        model,
        item.family,
        item.number,
        *usage,
        said.finish,
        said.text,
        tuple(round(each, _DIGITS) for each in chosen),
        tuple(tuple(round(each, _DIGITS) for each in some) for some in top),
    )


def write(file: Path, found: Sequence[Recorded]) -> None:
    """The same answers make the same file."""
    lines = msgspec.json.Encoder().encode_lines(found)
    file.write_bytes(gzip.compress(lines, 9, mtime=0))


def read(file: Path = FILE) -> list[Recorded]:
    """All answers of a file."""
    return msgspec.json.Decoder(Recorded).decode_lines(gzip.decompress(file.read_bytes()))


def digest(file: Path = FILE) -> str:
    """SHA-256 of the file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Replayed:
    """The roles of one request (policies/decoding/strategy.py). Each model's samples come in the order in which they stand, while
    there are some."""

    def __init__(self, samples: Mapping[str, Sequence[Recorded]], model: str) -> None:
        self._left = {name: list(reversed(found)) for name, found in samples.items()}
        self._model = model
        self.drawn: list[Recorded] = []

    @property
    def task(self) -> Task:
        """See Roles."""
        return Task(())

    async def sample(self, n: int, role: str = SAMPLER) -> AsyncGenerator[Sample, None]:
        """See Roles. What was begun is paid for, as if it ended at once."""
        left = self._left[DEAR if role == STRONG else self._model]
        begun = [left.pop() for _ in range(min(n, len(left)))]
        first = len(self.drawn)
        self.drawn += begun
        for index, each in enumerate(begun, first):
            yield each.sample(index)

    async def ask(self, role: str, prompt: str, most: int) -> Sample:  # noqa: ARG002
        """See Roles. Raises Unanswered."""
        raise Unanswered("not recorded")

    async def score(self, role: str, samples: Sequence[Sample]) -> list[float | None]:  # noqa: ARG002
        """See Roles."""
        return [None] * len(samples)

    @property
    def writes(self) -> bool:
        """See Roles."""
        return False

    @property
    def bounds_thoughts(self) -> bool:
        """See Roles."""
        return False

    async def write(self, text: str, most: int | None, stop: Sequence[str] = ()) -> Written:  # noqa: ARG002
        """See Roles. Raises Unanswered."""
        raise Unanswered("not recorded")

    def written(self, thought: str, said: str, finish: str | None) -> Sample:
        """See Roles; nothing ever is."""
        raise NotImplementedError

    def tell(self, sentence: str) -> None:
        """See Roles. A recording does not hear it."""

    def room(self, role: str, most: int, wished: int) -> int:  # noqa: ARG002
        """See Roles."""
        return wished


async def replayed(made: Strategy, roles: Replayed) -> Recorded:
    """The recorded answer that a strategy chooses. Raises NoneLeft."""
    async with aclosing(made.run(roles)) as events:
        async for event in events:
            if isinstance(event, Won):
                return roles.drawn[event.index]
    raise ValueError("a strategy ended without an answer")


async def attempted(found: Sequence[Recorded], orders: int = ORDERS, seed: int = 1) -> dict[str, list[Attempt]]:
    """By way to answer (WAYS), each question in so many orders of its samples, the same ones for all."""
    asked = {(item.family, item.number): item for item in items()}
    samples: dict[tuple[str, int], dict[str, list[Recorded]]] = {}
    for each in found:
        samples.setdefault((each.family, each.number), {}).setdefault(each.model, []).append(each)
    made: dict[str, Strategy] = {way: Single() if kind == SINGLE else strategy(kind, params) for way, (_, kind, params) in WAYS.items()}

    attempts: dict[str, list[Attempt]] = {way: [] for way in made}
    for question, given in samples.items():
        for order in range(orders):
            chance = random.Random(f"{seed}:{question}:{order}")  # noqa: S311 - the same orders each time
            drawn = {model: chance.sample(of, len(of)) for model, of in given.items()}
            for way, run in made.items():
                roles = Replayed(drawn, WAYS[way][0])
                won = await replayed(run, roles)
                attempts[way].append(_attempt(asked[question], won, roles.drawn, orders))
    return attempts


def _attempt(item: Item, won: Recorded, drawn: Sequence[Recorded], orders: int) -> Attempt:
    prompt, tokens = sum(each.prompt for each in drawn), sum(each.tokens for each in drawn)
    cost = sum(PRICES[each.model].cost(each.prompt, each.tokens) for each in drawn)
    return Attempt(item.family, item.number, item.right(won.said), len(drawn), prompt, tokens, cost, weight=1 / orders)
