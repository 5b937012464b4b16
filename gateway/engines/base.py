"""What the gateway knows of an engine beyond the OpenAI API: one Adapter per kind of engine.

An adapter is made of pure functions on parsed JSON; sending is the caller's business. What may take several round trips
(tokenize, score) is a generator that yields calls and is sent their answers: `run` drives it with whatever sends them.

    scores = await run(adapter.score(model, tokens, start), send)

A value that an engine leaves out is None, never 0: "no score" must not look like certainty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

Json = dict[str, Any]
T = TypeVar("T")


class UnsupportedError(ValueError):
    """This engine cannot do what was asked, whatever the request."""


class UnexpectedAnswerError(ValueError):
    """The engine answered in a shape, or with tokens, that this adapter does not know."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine honours. None: it depends on the model or on how the engine was started."""

    prompt_logprobs: bool = False
    """`prompt_logprobs` is answered; engines that lack it ignore it silently."""
    echo_scoring: bool = False
    """/v1/completions with `echo`, `logprobs` and `max_tokens` 0 scores the prompt in one call."""
    scoring: bool = False
    """`score` works, in whichever way."""
    n_within_slots: bool = False
    """`n` may not exceed the number of slots the engine was started with."""
    usage_counts_all_choices: bool = True
    """With n > 1 `completion_tokens` is the sum over the choices (else: of one of them)."""
    continue_prefix: bool = False
    """`continue_final` works."""
    json_schema: bool | None = None
    tools: bool | None = None
    include_usage: bool | None = None
    """`stream_options.include_usage` is understood."""
    min_tokens: bool = False
    token_ids: bool = False
    """`return_token_ids` is honoured."""
    keys_in_any_case: bool = False
    """The keys of a body may count in any case, so that two of them are one."""
    checks_model_name: bool = True
    """An unknown model is refused; else whatever model is loaded answers, under its own name."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """One token and its log probability (natural log). `logprob` None: no score. `bytes` None: not told."""

    token: str
    logprob: float | None
    id: int | None = None
    bytes: bytes | None = None
    top: tuple[TokenLogprob, ...] = ()


class ModelInfo(msgspec.Struct, frozen=True):
    """A model as its engine lists it. `max_model_len`: tokens of prompt and answer together, None when not told."""

    id: str
    max_model_len: int | None
    raw: Json


class Call(msgspec.Struct, frozen=True):
    """A POST to the engine: path below the engine's root, and JSON body."""

    path: str
    body: Json


Steps = Generator[list[Call], list[Json], T]
"""Yields rounds of calls, is sent their answers (status 200, parsed, same order), returns the result."""


async def run(steps: Steps[T], send: Callable[[Call], Awaitable[Json]]) -> T:
    """Drive `steps` to their result. Calls go one after the other: each finds in a cache what the last one left."""
    answers: list[Json] | None = None
    while True:
        try:
            calls = next(steps) if answers is None else steps.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result
        answers = [await send(call) for call in calls]


class Adapter(Protocol):
    """One kind of engine. Bodies and answers are never changed in place.

    Error questions take the status and the parsed body of an error answer: the whole envelope, or its inner `error`.
    """

    @property
    def name(self) -> str:
        """As `engine:` in the configuration names it."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def forbidden_paths(self) -> frozenset[str]:
        """Routes under /v1, with all below them, that do more than answer one request: no client may reach them."""

    def is_forbidden(self, path: str) -> bool:
        """Whether a request's path, however it is written, names a forbidden route or one below it."""

    def continue_final(self, body: Json, prefix: str) -> Json:
        """The chat request that lets the model go on from an assistant answer that begins with `prefix`.

        A last assistant message that this engine would continue anyway is lengthened; any other history gets a new one.
        An empty prefix adds nothing. Raises UnsupportedError.
        """

    def continued_text(self, request: Json, content: str, *, streamed: bool = False) -> str:
        """The new text in `content`, an answer to `continue_final`'s request (`streamed`: its deltas, joined).

        Raises UnsupportedError; UnexpectedAnswerError when the engine gave the prefix back altered.
        """

    def token_logprobs(self, choice: Json) -> list[TokenLogprob] | None:
        """The scored tokens of a choice, of a whole answer or of a chunk; None when it carries none.

        There may be fewer than tokens: llama.cpp leaves out those that end within a UTF-8 character.
        """

    def split_n(self, n: int, slots: int | None) -> list[int]:
        """How `n` samples are put to this engine: the `n` of each request (sum `n`). `slots` None: not known.

        The answer may still hold fewer choices than asked for (some servers ignore `n`): count them.
        """

    def tokenize(self, model: str, prompt: str | Json, *, special: bool = True) -> Steps[list[int]]:
        """Token ids of a text as /v1/completions would read it, or of a chat body as /v1/chat/completions would.

        special: whether a text gets the tokens that its model puts before every prompt. Raises UnsupportedError.
        """

    def score(self, model: str, tokens: Sequence[int], start: int = 1) -> Steps[list[float | None]]:
        """log p(tokens[i] | tokens[:i]) at every i >= start; None before, and at 0, where nothing is known.

        The scores are the model's own, before temperature and other sampling settings. Answers are aligned by token id.
        Raises UnsupportedError; UnexpectedAnswerError when the engine scored other tokens.
        """

    def models(self, answer: Json) -> list[ModelInfo]:
        """What GET /v1/models lists. Raises UnexpectedAnswerError."""

    def is_caller_fault(self, status: int, answer: Json) -> bool:
        """Whether an error that the engine calls its own (5xx) is about what the caller sent: clients would retry it in vain."""

    def is_context_overflow(self, status: int, answer: Json) -> bool:
        """Whether the request was too long for this model, though another with more context might serve it."""

    def is_unknown_model(self, status: int, answer: Json) -> bool:
        """Whether the engine does not serve the model asked for."""

    def rejects_include_usage(self, status: int, answer: Json) -> bool:
        """Whether a stream failed over the `stream_options.include_usage` that the gateway had put in."""
