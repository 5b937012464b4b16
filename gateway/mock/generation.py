"""What the mock says: from a request's body and its behaviour to the tokens of each choice."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from gateway.mock.behaviour import Behaviour, Say, ToolCall
from gateway.mock.errors import bad_value, error, invalid, too_long
from gateway.mock.schema import instance
from gateway.mock.tokens import Vocabulary, split

_NATURAL_LENGTH = 16  # Tokens of a default answer whose length the client left open; also the default of /v1/completions.


@dataclass(frozen=True)
class Choice:
    """One choice: `reasoning`, then `tokens` or `calls`. `count` tokens were generated, those cut off included."""

    prompt: list[str]
    reasoning: list[str]
    tokens: list[str]
    calls: tuple[ToolCall, ...]
    finish_reason: str
    stop_reason: str | None
    count: int


@dataclass(frozen=True)
class Generation:
    """All that is needed to answer a chat completion or a completion, in any form."""

    body: dict[str, Any]
    behaviour: Behaviour
    id: str
    created: int
    model: str
    prompts: list[list[str]]
    choices: list[Choice]
    cached: int
    vocabulary: Vocabulary

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))

    @property
    def uncached(self) -> int:
        """Prompt tokens that have to be computed."""
        return self.prompt_tokens - self.cached

    @property
    def completion_tokens(self) -> int:
        return sum(choice.count for choice in self.choices)

    @property
    def steps(self) -> int:
        """Engine steps: tokens of the longest choice."""
        return max(choice.count for choice in self.choices)

    @property
    def stream_options(self) -> dict[str, Any]:
        return self.body.get("stream_options") or {}


def render(body: dict[str, Any]) -> list[str]:
    """The prompt tokens of a chat, by a template with <|im_start|> marks; an image or a sound counts as one token."""
    messages = body.get("messages")
    if messages is None:
        raise invalid(("missing", "body.messages", "Field required", f"'input': {body!r}"))
    proceed, generate = body.get("continue_final_message", False), body.get("add_generation_prompt")
    if proceed and generate:
        raise error(400, "Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
    if proceed and generate is None:
        raise error(
            400,
            "continue_final_message and add_generation_prompt are not compatible. Use continue_final_message when you "
            "want the model to continue the final message, and add_generation_prompt when you want to add a header "
            "that will prompt it to start a new assistant message instead.",
        )
    text = "".join(f"<|im_start|>{message.get('role')}\n{content(message)}<|im_end|>\n" for message in messages)
    if proceed:
        return split(text.removesuffix("<|im_end|>\n"))
    return split(text if generate is False else text + "<|im_start|>assistant\n")


def content(message: dict[str, Any]) -> str:
    """The text of a message, other parts as marks."""
    parts = message.get("content") or ""
    if isinstance(parts, str):
        return parts
    return "".join(part.get("text", f"<|{part.get('type')}|>") for part in parts)


def prompts(body: dict[str, Any], vocabulary: Vocabulary) -> list[list[str]]:
    """The prompts of a completion: a text, token ids, or a list of either."""
    prompt = body.get("prompt") or ""
    if isinstance(prompt, str):
        return [split(prompt)]
    if prompt and isinstance(prompt[0], int):
        prompt = [prompt]
    return [split(one) if isinstance(one, str) else [vocabulary.piece(number) for number in one] for one in prompt]


def generate(
    body: dict[str, Any],
    behaviour: Behaviour,
    *,
    chat: bool,
    model: str,
    limit: int,
    vocabulary: Vocabulary,
    request_id: str | None,
) -> Generation:
    """Checks the request as the engine does and settles every token of the answer. Raises Refused."""
    budget = _budget(body, chat)
    _check(body)
    given = [render(body)] if chat else prompts(body, vocabulary)
    longest = max(map(len, given), default=0)
    if longest + (budget or 1) > limit:
        raise too_long(limit, longest, budget)
    n = body.get("n") or 1
    choices = [
        _choice(body, behaviour.say(index), index, prompt, budget, limit - len(prompt))
        for index, prompt in enumerate(prompt for prompt in given for _ in range(n))
    ]
    name = request_id or body.get("request_id") or uuid4().hex[:16]
    return Generation(
        body=body,
        behaviour=behaviour,
        id=f"chatcmpl-{name}" if chat else f"cmpl-{name}",
        created=int(time.time()),
        model=model,
        prompts=given,
        choices=choices,
        cached=0,
        vocabulary=vocabulary,
    )


def _budget(body: dict[str, Any], chat: bool) -> int | None:
    name = "max_completion_tokens" if chat and body.get("max_completion_tokens") is not None else "max_tokens"
    budget: int | None = body.get(name)
    if budget is None:
        return None if chat else _NATURAL_LENGTH
    least = 0 if not chat and body.get("echo") else 1
    if budget < least:
        raise bad_value(f"max_tokens must be at least 1, got {budget}.", "max_tokens", budget)
    return budget


def _check(body: dict[str, Any]) -> None:
    temperature, top, n = body.get("temperature"), body.get("top_logprobs"), body.get("n")
    if temperature is not None and temperature < 0:
        raise bad_value(f"temperature must be non-negative, got {float(temperature)}.", "temperature", float(temperature))
    if top is not None and top > 20:
        raise bad_value(f"Requested sample logprobs of {top}, which is greater than max allowed: 20", "logprobs", top)
    if n is not None and n < 1:
        raise bad_value(f"n must be at least 1, got {n}.", "n", n)
    if body.get("stream") and body.get("prompt_logprobs") is not None:
        raise bad_value("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")


def _choice(body: dict[str, Any], say: Say, index: int, prompt: list[str], budget: int | None, room: int) -> Choice:
    reasoning = _reasoning(body, say)
    calls = say.tool_calls or (() if _says_text(say) else _default_calls(body))
    natural = False
    if calls:
        tokens = [piece for call in calls for piece in split(call.arguments)]
    elif _says_text(say):
        tokens = list(say.tokens) if say.tokens is not None else split(say.text or "")
    elif (text := _structured(body)) is not None:
        tokens = split(text)
    else:
        natural = True
        tokens = _default_tokens(index, budget if budget is not None else min(_NATURAL_LENGTH, room))
    left = room if budget is None else budget
    cut = not calls and (len(reasoning) + len(tokens) > left or (natural and budget is not None))
    reasoning, tokens = reasoning[:left], tokens if calls else tokens[: max(0, left - len(reasoning))]
    count = len(reasoning) + len(tokens)
    tokens, stop, consumed = _stopped(tokens, body) if not calls else (tokens, None, len(tokens))
    finish = "tool_calls" if calls else "length" if cut and stop is None else "stop"
    count = count if stop is None else len(reasoning) + consumed
    if budget == 0:
        count = 1  # Scoring alone: the engine generates one token and drops it.
    return Choice(prompt, reasoning, tokens, tuple(calls), say.finish_reason or finish, stop, count)


def _says_text(say: Say) -> bool:
    return say.text is not None or say.tokens is not None


def _default_tokens(index: int, count: int) -> list[str]:
    word = "tok" if index == 0 else f"choice{index}tok"
    return [f"{' ' * (k > 0)}{word}{k}" for k in range(count)]


def _reasoning(body: dict[str, Any], say: Say) -> list[str]:
    if say.reasoning is not None:
        return split(say.reasoning)
    thinks = (body.get("chat_template_kwargs") or {}).get("enable_thinking") is True
    return split("think0 think1 think2") if thinks and not _says_text(say) else []


def _default_calls(body: dict[str, Any]) -> Sequence[ToolCall]:
    """The tool asked for, or the first one, with the smallest arguments; none once a tool has answered."""
    tools, wanted, messages = body.get("tools"), body.get("tool_choice"), body.get("messages") or [{}]
    if not tools or wanted == "none" or messages[-1].get("role") == "tool":
        return ()
    functions = [tool.get("function", {}) for tool in tools]
    name = wanted["function"]["name"] if isinstance(wanted, dict) else functions[0].get("name")
    chosen = next((function for function in functions if function.get("name") == name), functions[0])
    return (ToolCall(name=name, arguments=orjson.dumps(instance(chosen.get("parameters", {}))).decode()),)


def _structured(body: dict[str, Any]) -> str | None:
    form, outputs = body.get("response_format") or {}, body.get("structured_outputs") or {}
    if outputs.get("choice"):
        return str(outputs["choice"][0])
    schema = outputs.get("json")
    if form.get("type") == "json_schema":
        schema = form.get("json_schema", {}).get("schema", {})
    if form.get("type") == "json_object" or outputs.get("json_object"):
        schema = {}
    if isinstance(schema, str):
        schema = orjson.loads(schema)
    return None if schema is None else orjson.dumps(instance(schema)).decode()


def _stopped(tokens: list[str], body: dict[str, Any]) -> tuple[list[str], str | None, int]:
    """Cuts at the first stop string: the tokens kept, the string, and how many tokens had to be generated."""
    stops = body.get("stop") or []
    stops = [stops] if isinstance(stops, str) else stops
    text = "".join(tokens)
    found = min(((text.find(stop), stop) for stop in stops if stop in text), default=None)
    if found is None:
        return tokens, None, len(tokens)
    end = found[0] + len(found[1])
    keep = end if body.get("include_stop_str_in_output") else found[0]
    kept: list[str] = []
    start = consumed = 0
    for token in tokens:
        if start >= end:
            break
        if start < keep:
            kept.append(token[: keep - start])
        start += len(token)
        consumed += 1
    return kept, found[1], consumed
