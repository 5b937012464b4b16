"""The shapes of the engine's generated answers: fields, their order and their nulls as recorded from vLLM 0.32.0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any
from uuid import uuid4

import orjson

from gateway.mock.behaviour import ToolCall
from gateway.mock.generation import Choice, Generation, content
from gateway.mock.tokens import alternatives, logprob, rank, split

FINGERPRINT = "vllm-0.32.0-550dbbb1"
Json = dict[str, Any]
Step = list[bytes]
"""The SSE payloads of one engine step."""


# -- both forms


def _usage(generation: Generation, *, chat: bool, stream: bool) -> Json:
    prompt, completion = generation.prompt_tokens, generation.completion_tokens
    details: Json = {
        "cached_tokens": generation.cached,
        "created_cache_tokens": 0 if chat else None,
        "multimodal_tokens": None,
    }
    usage: Json = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
    if stream:
        return {**usage, "prompt_tokens_details": {key: value for key, value in details.items() if value is not None}}
    return {**usage, "prompt_tokens_details": details, "completion_tokens_details": None}


def _varied(generation: Generation, usage: Json, *, last: bool) -> Json:
    """{"usage": ...} as the behaviour wants it, or {} to leave it out. `last`: the usage of the whole answer."""
    match generation.behaviour.usage:
        case "none":
            return {}
        case "null":
            return {"usage": None}
        case "openai" if not last:
            return {"usage": None}
        case "empty":
            return {"usage": {}}
        case "partial":
            return {"usage": {"prompt_tokens": usage["prompt_tokens"]}}
    return {"usage": usage}


def _prompt_logprobs(generation: Generation, prompt: list[str], top: int) -> list[Json | None]:
    result: list[Json | None] = [None]
    for position, piece in enumerate(prompt[1:], 1):
        place, value = rank(piece, position), logprob(piece, position)
        entries = {str(generation.vocabulary.id(piece)): {"logprob": value, "rank": place, "decoded_token": piece}}
        if top and place > 1:
            entries[str(generation.vocabulary.id(" alt1"))] = {
                "logprob": value / 2,
                "rank": 1,
                "decoded_token": " alt1",
            }
        result.append(entries)
    return result


def _named(generation: Generation, piece: str) -> str:
    return f"token_id:{generation.vocabulary.id(piece)}" if generation.body.get("return_tokens_as_token_ids") else piece


def _ids(generation: Generation, pieces: list[str]) -> list[int] | None:
    return generation.vocabulary.ids(pieces) if generation.body.get("return_token_ids") else None


class _Chunks:
    """Makes the payloads of one stream."""

    def __init__(self, generation: Generation, kind: str, *, chat: bool) -> None:
        self._generation = generation
        self._head = {"id": generation.id, "object": kind, "created": generation.created, "model": generation.model}
        self._chat = chat
        self._completion = 0
        options, variant = generation.stream_options, generation.behaviour.usage
        self.sums_up = bool(options.get("include_usage")) and variant != "none"
        counts = options.get("include_usage") and options.get("continuous_usage_stats") and variant == "exact"
        self._in_every_chunk = bool(counts) or variant not in ("exact", "none")

    def chunk(self, choice: Json, tokens: int = 0, **tail: Any) -> bytes:
        """One choice's event, `tokens` tokens further."""
        self._completion += tokens
        usage: Json = {}
        if self._in_every_chunk:
            prompt, completion = self._generation.prompt_tokens, self._completion
            counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}
            usage = _varied(self._generation, {**counts, "completion_tokens_details": None}, last=False)
        if choice.get("finish_reason") is not None and not self.sums_up:
            tail["system_fingerprint"] = FINGERPRINT
        return orjson.dumps({**self._head, "choices": [choice], **usage, **tail})

    def summary(self) -> bytes:
        """The event that carries the usage."""
        usage = _varied(self._generation, _usage(self._generation, chat=self._chat, stream=True), last=True)
        return orjson.dumps({**self._head, "choices": [], **usage, "system_fingerprint": FINGERPRINT})


# -- chat completions


def _chat_logprobs(generation: Generation, tokens: list[str], start: int = 0) -> Json | None:
    if not generation.body.get("logprobs") or not tokens:
        return None
    top = generation.body.get("top_logprobs") or 0

    def entry(piece: str, value: float) -> Json:
        name = _named(generation, piece)
        return {"token": name, "logprob": value, "bytes": list(name.encode())}

    return {
        "content": [
            {
                **entry(piece, logprob(piece, position)),
                "top_logprobs": [entry(*other) for other in alternatives(piece, position, top)],
            }
            for position, piece in enumerate(tokens, start)
        ]
    }


def _call(call: ToolCall) -> Json:
    return {
        "id": call.id or f"chatcmpl-tool-{uuid4().hex[:16]}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _prefix(generation: Generation) -> str:
    """With `echo`, the text of the last message, which the answer repeats."""
    return content(generation.body["messages"][-1]) if generation.body.get("echo") and generation.body["messages"] else ""


def chat(generation: Generation) -> Json:
    """The body of a chat completion that is not streamed."""
    body = generation.body
    top = 0 if body.get("echo") and body.get("prompt_logprobs") is None else body.get("prompt_logprobs")
    return {
        "id": generation.id,
        "object": "chat.completion",
        "created": generation.created,
        "model": generation.model,
        "choices": [_chat_choice(generation, index, choice) for index, choice in enumerate(generation.choices)],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        **_varied(generation, _usage(generation, chat=True, stream=False), last=True),
        "prompt_logprobs": None if top is None else _prompt_logprobs(generation, generation.prompts[0], top),
        "prompt_token_ids": _ids(generation, generation.prompts[0]),
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _chat_choice(generation: Generation, index: int, choice: Choice) -> Json:
    silent = choice.calls or (choice.reasoning and not choice.tokens)
    message: Json = {
        "role": "assistant",
        "content": None if silent else _prefix(generation) + "".join(choice.tokens),
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if choice.calls:
        message["tool_calls"] = [_call(call) for call in choice.calls]
    message["reasoning"] = "".join(choice.reasoning) or None
    return {
        "index": index,
        "message": message,
        "logprobs": _chat_logprobs(generation, choice.reasoning + choice.tokens),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": _ids(generation, choice.reasoning + choice.tokens),
        "routed_experts": None,
    }


def chat_stream(generation: Generation) -> Iterator[Step]:
    """The events of a streamed chat completion, step by step, without [DONE]."""
    chunks = _Chunks(generation, "chat.completion.chunk", chat=True)
    first: Step = []
    for index in range(len(generation.choices)):
        opening = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        first.append(chunks.chunk(opening, prompt_token_ids=_ids(generation, generation.prompts[0]), prompt_text=None))
        if prefix := _prefix(generation):
            first.append(chunks.chunk({**opening, "delta": {"content": prefix}, "token_ids": None}))
    deltas = [_deltas(choice) for choice in generation.choices]
    for number in range(max(map(len, deltas))):
        step: Step = []
        for index, choice in enumerate(generation.choices):
            if number < len(deltas[index]):
                step.append(_chat_chunk(generation, chunks, index, choice, deltas[index], number))
        yield first + step if number == 0 else step
    if chunks.sums_up:
        yield [chunks.summary()]


def _deltas(choice: Choice) -> list[tuple[Json, str | None]]:
    """Each delta of a choice with its token; None: no token."""
    deltas: list[tuple[Json, str | None]] = [({"reasoning": piece}, piece) for piece in choice.reasoning]
    for index, call in enumerate(choice.calls):
        whole = _call(call)
        opening = {
            "id": whole["id"],
            "type": "function",
            "index": index,
            "function": {"name": call.name, "arguments": ""},
        }
        deltas.append(({"tool_calls": [opening]}, None))
        pieces = split(call.arguments)
        deltas += [({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, piece) for piece in pieces]
    if not choice.calls:
        deltas += [({"content": piece}, piece) for piece in choice.tokens]
    if choice.finish_reason != "length" or not deltas:
        deltas.append(({"content": ""}, None))
    return deltas


def _chat_chunk(
    generation: Generation,
    chunks: _Chunks,
    index: int,
    choice: Choice,
    deltas: list[tuple[Json, str | None]],
    number: int,
) -> bytes:
    delta, token = deltas[number]
    role = generation.behaviour.role
    tokens = [token] if token is not None else []
    event: Json = {
        "index": index,
        "delta": delta if role is None else {"role": role, **delta},
        "logprobs": _chat_logprobs(generation, tokens, number),
        "finish_reason": None,
    }
    if number == len(deltas) - 1:
        event |= {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
    event["token_ids"] = _ids(generation, tokens)
    return chunks.chunk(event, len(tokens))


# -- completions


def _legacy_logprobs(generation: Generation, tokens: list[str], start: int, offset: int, *, first: bool = False) -> Json | None:
    """Of `tokens` from position `start`; `first`: they begin the prompt, whose first token has none."""
    top = generation.body.get("logprobs")
    if top is None or isinstance(top, bool):
        return None
    names = [_named(generation, piece) for piece in tokens]
    values: list[float | None] = [logprob(piece, position) for position, piece in enumerate(tokens, start)]
    tops: list[Json | None] = [
        {_named(generation, other): value for other, value in alternatives(piece, position, max(1, top))}
        for position, piece in enumerate(tokens, start)
    ]
    if first and tokens:
        values[0] = tops[0] = None
    offsets = []
    for name in names:
        offsets.append(offset)
        offset += len(name)
    return {"text_offset": offsets, "token_logprobs": values, "tokens": names, "top_logprobs": tops}


def _echoed(generation: Generation, choice: Choice) -> list[str]:
    return choice.prompt if generation.body.get("echo") else []


def completion(generation: Generation) -> Json:
    """The body of a completion that is not streamed."""
    return {
        "id": generation.id,
        "object": "text_completion",
        "created": generation.created,
        "model": generation.model,
        "choices": [_completion_choice(generation, index, choice) for index, choice in enumerate(generation.choices)],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        **_varied(generation, _usage(generation, chat=False, stream=False), last=True),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def _completion_choice(generation: Generation, index: int, choice: Choice) -> Json:
    body = generation.body
    echoed = _echoed(generation, choice)
    top = body.get("prompt_logprobs")
    if top is None and echoed:
        top = body.get("logprobs")
    return {
        "index": index,
        "text": "".join(echoed + choice.tokens),
        "logprobs": _legacy_logprobs(generation, echoed + choice.tokens, 0 if echoed else len(choice.prompt), 0, first=bool(echoed)),
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
        "token_ids": _ids(generation, choice.tokens),
        "prompt_logprobs": None if top is None else _prompt_logprobs(generation, choice.prompt, top),
        "prompt_token_ids": _ids(generation, choice.prompt),
        "routed_experts": None,
    }


def completion_stream(generation: Generation) -> Iterator[Step]:
    """The events of a streamed completion, step by step, without [DONE]."""
    chunks = _Chunks(generation, "text_completion", chat=False)
    streams = [_completion_events(generation, chunks, index, choice) for index, choice in enumerate(generation.choices)]
    for step in zip_longest(*streams):
        yield [event for event in step if event is not None]
    if chunks.sums_up:
        yield [chunks.summary()]


def _completion_events(generation: Generation, chunks: _Chunks, index: int, choice: Choice) -> Iterator[bytes]:
    echoed = _echoed(generation, choice)
    pieces = [[token] for token in choice.tokens]
    if choice.finish_reason != "length" or not pieces:
        pieces.append([])
    offset = 0
    for number, tokens in enumerate(pieces):
        shown = echoed + tokens if number == 0 else tokens
        at_start = number == 0 and bool(echoed)
        position = 0 if at_start else len(choice.prompt) + number
        last = number == len(pieces) - 1
        event = {
            "index": index,
            "text": "".join(shown),
            "logprobs": _legacy_logprobs(generation, shown, position, offset, first=at_start) if shown else None,
            "finish_reason": choice.finish_reason if last else None,
            "stop_reason": choice.stop_reason if last else None,
            "prompt_token_ids": generation.vocabulary.ids(choice.prompt) if at_start else None,
            "token_ids": _ids(generation, tokens),
        }
        offset += sum(len(_named(generation, piece)) for piece in shown)
        yield chunks.chunk(event, len(tokens))
