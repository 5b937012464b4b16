"""vLLM, as of 0.32.0."""

# ruff: noqa: ARG002 - a seam's arguments are not all of use to every engine

from __future__ import annotations

from collections.abc import Sequence

from gateway.engines import logprobs
from gateway.engines.base import Call, Capabilities, Json, Steps, UnexpectedAnswerError
from gateway.engines.openai import FORBIDDEN_PATHS, OpenAIAdapter, ids, with_prefix

_TEMPLATE_FIELDS = (
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)


class VLLMAdapter(OpenAIAdapter):
    """Scores in one call; continues an answer on demand; `n` in one request, usage over all of it."""

    name = "vllm"
    capabilities = Capabilities(
        prompt_logprobs=True,
        echo_scoring=True,
        scoring=True,
        continue_prefix=True,
        json_schema=True,
        include_usage=True,
        min_tokens=True,
        token_ids=True,
    )
    # The render routes show prompts as the engine sees them and exist for its own scale-out, when it is switched on.
    forbidden_paths = FORBIDDEN_PATHS | {
        "/v1/chat/completions/render",
        "/v1/chat/completions/derender",
        "/v1/completions/render",
        "/v1/completions/derender",
        "/v1/messages/render",
        "/v1/responses/render",
    }

    def continue_final(self, body: Json, prefix: str) -> Json:
        # A last assistant message starts a new turn unless continue_final_message is set, and that is refused unless
        # add_generation_prompt, true by default, is false.
        if not prefix:
            return dict(body)
        goes_on = body.get("continue_final_message") is True
        messages = with_prefix(body["messages"], prefix, lengthen=goes_on)
        # With `echo` the answer would repeat the prefix.
        kept = {field: value for field, value in body.items() if field != "echo"}
        return {**kept, "messages": messages, "continue_final_message": True, "add_generation_prompt": False}

    def continued_text(self, request: Json, content: str, *, streamed: bool = False) -> str:
        return content

    def tokenize(self, model: str, prompt: str | Json, *, special: bool = True) -> Steps[list[int]]:
        if isinstance(prompt, str):
            body: Json = {"model": model, "prompt": prompt, "add_special_tokens": special}
        else:
            body = {"model": model} | {field: prompt[field] for field in _TEMPLATE_FIELDS if field in prompt}
        (answer,) = yield [Call("/tokenize", body)]
        return ids(answer.get("tokens"))

    def score(self, model: str, tokens: Sequence[int], start: int = 1) -> Steps[list[float | None]]:
        wanted = list(tokens)
        first = max(start, 1)
        if first >= len(wanted):
            return [None] * len(wanted)
        body = {
            "model": model,
            "prompt": wanted,
            "max_tokens": 0,
            "echo": True,
            "logprobs": 0,
            "return_tokens_as_token_ids": True,
        }
        (answer,) = yield [Call("/v1/completions", body)]
        choices = answer.get("choices")
        scored = logprobs.token_logprobs(choices[0]) if choices else None
        if scored is None or [one.id for one in scored] != wanted:
            raise UnexpectedAnswerError("vLLM scored other tokens than it was given")
        return [None if i < first else one.logprob for i, one in enumerate(scored)]
