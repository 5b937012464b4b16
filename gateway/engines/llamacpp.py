"""llama.cpp's HTTP server, as of xllamacpp 2026.10.11549."""

# ruff: noqa: ARG002 - a seam's arguments are not all of use to every engine

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gateway.engines import logprobs
from gateway.engines.base import Call, Capabilities, Json, Steps, TokenLogprob, UnexpectedAnswerError
from gateway.engines.openai import OpenAIAdapter, error_message, ids, plain_text, positive, with_prefix

_TEMPLATE_FIELDS = ("messages", "tools", "chat_template_kwargs", "add_generation_prompt")

_BIAS = 1_000.0
"""Added to one token's logit it makes that token certain; logits are a few tens at most."""

_RANKS = (300, 1_000_000)
"""How many of the likeliest tokens are listed when a token is looked for among them: first some, then all there are."""

_CALLER_FAULT = re.compile(r"Failed to parse |input \(\d+ tokens\) is too large|\w+ input is not supported")


class LlamaCppAdapter(OpenAIAdapter):
    """Continues by itself; scores token by token; `n` is bounded by its slots; serves one model under any name."""

    name = "llama.cpp"
    capabilities = Capabilities(
        scoring=True,
        n_within_slots=True,
        usage_counts_all_choices=False,
        continue_prefix=True,
        json_schema=True,
        include_usage=True,
        checks_model_name=False,
    )

    def is_caller_fault(self, status: int, answer: Json) -> bool:
        # Messages and tools of a wrong shape, images to a text model and inputs above the batch size are all 500 here.
        return status == 500 and _CALLER_FAULT.match(error_message(answer)) is not None

    def continue_final(self, body: Json, prefix: str) -> Json:
        # A last assistant message is continued without asking. Two of them are refused; an empty one spoils the prompt:
        # the header of an answer is then missing, and the model writes it into its text.
        if not prefix:
            return dict(body)
        messages = body["messages"]
        goes_on = bool(messages) and messages[-1].get("role") == "assistant"
        return {**body, "messages": with_prefix(messages, prefix, lengthen=goes_on)}

    def continued_text(self, request: Json, content: str, *, streamed: bool = False) -> str:
        # A whole answer begins with the text it continued; the deltas of a stream do not.
        if streamed:
            return content
        last = request["messages"][-1]
        sent = plain_text(last.get("content")) if last.get("role") == "assistant" else ""
        if not content.startswith(sent):
            raise UnexpectedAnswerError("llama.cpp did not give the continued text back as it was sent")
        return content[len(sent) :]

    def split_n(self, n: int, slots: int | None) -> list[int]:
        most = slots or 1
        return [min(most, n - done) for done in range(0, n, most)]

    def tokenize(self, model: str, prompt: str | Json, *, special: bool = True) -> Steps[list[int]]:
        if not isinstance(prompt, str):
            fields = {field: prompt[field] for field in _TEMPLATE_FIELDS if field in prompt}
            (rendered,) = yield [Call("/apply-template", fields)]
            prompt, special = _string(rendered.get("prompt")), True
        (answer,) = yield [Call("/tokenize", {"content": prompt, "add_special": special, "parse_special": True})]
        return ids(answer.get("tokens"))

    def score(self, model: str, tokens: Sequence[int], start: int = 1) -> Steps[list[float | None]]:
        # It scores no prompt. But the score of a sampled token is the model's own, from before the bias: so every token
        # is made certain in turn, one request each, and the prompt so far comes from the cache.
        wanted = list(tokens)
        scores: list[float | None] = [None] * len(wanted)
        asked = range(max(start, 1), len(wanted))
        if not asked:
            return scores
        answers = yield [_forced(model, wanted[:i], wanted[i]) for i in asked]
        hidden = []
        for i, answer in zip(asked, answers, strict=True):
            sampled = _sampled(answer)
            if sampled is None:
                hidden.append(i)
            elif sampled.id == wanted[i]:
                scores[i] = sampled.logprob
            else:
                raise UnexpectedAnswerError("llama.cpp sampled another token than the one to score")

        # A token that ends within a UTF-8 character is sampled but not reported. It is listed, though, among the tokens
        # likelier and less likely than another, harmless one.
        for most in _RANKS:
            if not hidden:
                return scores
            answers = yield [_listed(model, wanted[:i], most) for i in hidden]
            for i, answer in zip(hidden, answers, strict=True):
                scores[i] = _found(wanted[i], answer)
            hidden = [i for i in hidden if scores[i] is None]
        if hidden:
            raise UnexpectedAnswerError("llama.cpp reported no score for a token that ends within a character")
        return scores

    def _max_model_len(self, entry: Json) -> int | None:
        # n_ctx is what one slot holds; n_ctx_train, what the model was made for, may be far more.
        meta = entry.get("meta")
        return positive(meta.get("n_ctx")) if isinstance(meta, dict) else None

    def is_unknown_model(self, status: int, answer: Json) -> bool:
        return False


def _forced(model: str, prompt: list[int], token: int | str, most: int = 1) -> Call:
    """One token of answer, and that is `token`, with the `most` likeliest beside it."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": 1,
        "temperature": 0,
        "logit_bias": [[token, _BIAS]],
        "logprobs": most,
        "cache_prompt": True,
    }
    return Call("/v1/completions", body)


def _listed(model: str, prompt: list[int], most: int) -> Call:
    return _forced(model, prompt, "a", most)


def _sampled(answer: Json) -> TokenLogprob | None:
    choices = answer.get("choices")
    if not choices:
        raise UnexpectedAnswerError("llama.cpp gave no choice")
    scored = logprobs.token_logprobs(choices[0])
    return scored[0] if scored else None


def _found(token: int, answer: Json) -> float | None:
    sampled = _sampled(answer)
    listed = sampled.top if sampled is not None else ()
    return next((one.logprob for one in listed if one.id == token), None)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise UnexpectedAnswerError("/apply-template gave no prompt")
    return value
