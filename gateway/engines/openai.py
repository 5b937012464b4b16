"""Any server that speaks the OpenAI API: what can be relied on when nothing else is known of it.

Its error questions know the wordings of the common servers, for `engine:` may be left out of the configuration.
"""

# ruff: noqa: ARG002 - a seam's arguments are not all of use to every engine

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

from gateway.engines import logprobs
from gateway.engines.base import (
    Capabilities,
    Json,
    ModelInfo,
    Steps,
    TokenLogprob,
    UnexpectedAnswerError,
    UnsupportedError,
)

FORBIDDEN_PATHS = frozenset(
    {
        # Changes what the engine serves (vLLM and engines like it).
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        # Hands out credentials of the account behind the gateway's key.
        "/v1/realtime/client_secrets",
        "/v1/realtime/sessions",
        "/v1/realtime/transcription_sessions",
        "/v1/chatkit",
        "/v1/organization",
        "/v1/projects",
        # Spends or stores on that account beyond one answer.
        "/v1/fine_tuning",
        "/v1/evals",
        "/v1/assistants",
        "/v1/threads",
        "/v1/vector_stores",
        "/v1/containers",
        "/v1/files",
        "/v1/uploads",
        "/v1/batches",
    }
)

_OVERFLOW_CODES = ("context_length_exceeded", "exceed_context_size_error")
_OVERFLOW_WORDS = (
    "maximum context length",  # OpenAI, vLLM, SGLang
    "max_model_len",  # vLLM, when max_tokens alone is more than the model holds
    "model's context length",  # SGLang
    "available context size",  # llama.cpp
    "context window",
)


class OpenAIAdapter:
    """The generic engine; the others say where they differ."""

    name = "openai"
    capabilities = Capabilities(keys_in_any_case=True)
    forbidden_paths = FORBIDDEN_PATHS

    def is_forbidden(self, path: str) -> bool:
        bare = path.partition("?")[0]
        while (decoded := unquote(bare)) != bare:  # an engine behind a second proxy sees it decoded twice
            bare = decoded
        bare = posixpath.normpath("/" + bare.replace("\\", "/").lstrip("/")).lower()
        return any(bare == root or bare.startswith(root + "/") for root in self.forbidden_paths)

    def continue_final(self, body: Json, prefix: str) -> Json:
        raise UnsupportedError("no way to continue an answer is common to all OpenAI servers")

    def continued_text(self, request: Json, content: str, *, streamed: bool = False) -> str:
        raise UnsupportedError("no way to continue an answer is common to all OpenAI servers")

    def token_logprobs(self, choice: Json) -> list[TokenLogprob] | None:
        return logprobs.token_logprobs(choice)

    def split_n(self, n: int, slots: int | None) -> list[int]:
        return [n] if n > 0 else []

    def tokenize(self, model: str, prompt: str | Json, *, special: bool = True) -> Steps[list[int]]:
        raise UnsupportedError("the OpenAI API has no tokenizer route")

    def score(self, model: str, tokens: Sequence[int], start: int = 1) -> Steps[list[float | None]]:
        raise UnsupportedError("the OpenAI API scores no given text")

    def models(self, answer: Json) -> list[ModelInfo]:
        entries = answer.get("data")
        if entries is None and "data" in answer:  # Ollama, with no model
            return []
        if not isinstance(entries, list):
            raise UnexpectedAnswerError("/v1/models has no list `data`")
        return [self._model(entry) for entry in entries]

    def _model(self, entry: Any) -> ModelInfo:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            raise UnexpectedAnswerError("an entry of /v1/models has no id")
        return ModelInfo(entry["id"], self._max_model_len(entry), entry)

    def _max_model_len(self, entry: Json) -> int | None:
        # Not in OpenAI's own answer: vLLM and SGLang, OpenRouter, Groq.
        return positive(entry.get("max_model_len"), entry.get("context_length"), entry.get("context_window"))

    def is_caller_fault(self, status: int, answer: Json) -> bool:
        return False

    def is_context_overflow(self, status: int, answer: Json) -> bool:
        if status not in (400, 413, 422):
            return False
        error = _error(answer)
        if error.get("code") in _OVERFLOW_CODES or error.get("type") in _OVERFLOW_CODES:
            return True
        message = _text(error.get("message")).lower()
        return any(words in message for words in _OVERFLOW_WORDS)

    def is_unknown_model(self, status: int, answer: Json) -> bool:
        error = _error(answer)
        if error.get("code") == "model_not_found":
            return True
        message = _text(error.get("message")).lower()
        return status == 404 and "model" in message and ("does not exist" in message or "not found" in message)

    def rejects_include_usage(self, status: int, answer: Json) -> bool:
        if status not in (400, 422):
            return False
        # Anywhere in it: `param`, a message, or the path in a validator's list of faults.
        said = json.dumps(answer)
        return "stream_options" in said or "include_usage" in said


def positive(*values: Any) -> int | None:
    """The first of `values` that is a positive integer."""
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0), None)


def ids(values: Any) -> list[int]:
    """A list of token ids from an answer. Raises UnexpectedAnswerError."""
    if not isinstance(values, list) or not all(isinstance(value, int) for value in values):
        raise UnexpectedAnswerError("the answer holds no list of token ids")
    return values


def with_prefix(messages: list[Json], prefix: str, *, lengthen: bool) -> list[Json]:
    """`messages` with an assistant message of `prefix` at the end, or with the last one lengthened by it.

    Raises UnsupportedError when that one holds more than text.
    """
    if not lengthen:
        return [*messages, {"role": "assistant", "content": prefix}]
    *before, last = messages
    return [*before, {**last, "content": plain_text(last.get("content")) + prefix}]


def plain_text(content: Any) -> str:
    """A message's content as one string. Raises UnsupportedError when it holds more than text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        raise UnsupportedError("an assistant message that holds more than text cannot be continued")
    # One string, for engines differ in what they put between parts.
    return "\n".join(part["text"] for part in content)


def error_message(answer: Json) -> str:
    """The message of an error answer."""
    return _text(_error(answer).get("message"))


def _error(answer: Json) -> Json:
    inner = answer.get("error")
    return inner if isinstance(inner, dict) else answer


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
