"""Going on with an answer from where it stands: a prompt of token ids, so that no chat template reads what was written anew.

    writing = Writing(model, asked, errand, relayed)
    written = await writing.on(text, most, stop)      what the model writes after its prompt and this text

The prompt's tokens come from the engine's own template, once for each request; those of the text are told anew each time, as one text. What
is sampled is text, and so are its stops: a tool call, a schema or log-probabilities would be lost, and requests with these go another way.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from gateway.engines.base import Call as EngineCall
from gateway.engines.base import Json, UnexpectedAnswerError, UnsupportedError, run
from gateway.serving.call import Answer, Call, Purpose, Receipt
from gateway.serving.errand import Errand
from gateway.serving.state import RealModel
from gateway.wire.errors import JSON
from gateway.wire.request import json_object, read
from policies.decoding.strategy import Unanswered, Written

Relayed = Callable[[RealModel, Errand], Awaitable[tuple[Answer, Receipt]]]

_COMPLETIONS: Final = "/v1/completions"
# What of a chat request is no member of a completion's, or said otherwise there. All else is how tokens are drawn, and goes on.
_OF_CHATS: Final = frozenset(
    (
        *("messages", "model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "stop", "trilemma"),
        *("chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "add_special_tokens", "echo"),
        *("reasoning_effort", "include_reasoning", "tool_choice", "parallel_tool_calls", "function_call", "top_logprobs"),
    )
)
# What text alone cannot give, or what makes another prompt of it.
_MORE_THAN_TEXT: Final = ("tools", "functions", "response_format", "structured_outputs", "logprobs", "grammar", "guided_json", "modalities")
# Tokens of an answer where nothing bounds it.
_UNBOUNDED: Final = 4_096


class Writing:
    """The written part of one request. asked: its body. errand: of which the calls are variants."""

    def __init__(self, model: RealModel, asked: Mapping[str, Any], errand: Errand, relayed: Relayed) -> None:
        self._model = model
        self._asked = asked
        self._errand = errand
        self._relayed = relayed
        self._prompt: list[int] | None = None
        self.parts: list[Receipt] = []
        self.body: dict[str, Any] = {}

    @property
    def able(self) -> bool:
        """Whether engine and request allow it."""
        engines = {each.adapter.name for each in self._model.backends}
        if len(engines) != 1 or not all(each.adapter.capabilities.continue_prefix for each in self._model.backends):
            return False
        messages = self._asked.get("messages")
        return not any(self._asked.get(name) for name in _MORE_THAN_TEXT) and isinstance(messages, list) and all(map(_is_text, messages))

    async def on(self, text: str, most: int | None, stop: Sequence[str]) -> Written:
        """See Roles.write. Raises Unanswered, ApiError."""
        adapter, name = self._model.backends[0].adapter, self._model.public
        try:
            if self._prompt is None:
                self._prompt = await run(adapter.tokenize(name, dict(self._asked)), self._told)
            tokens = await run(adapter.tokenize(name, text, special=False), self._told) if text else []
        except (UnsupportedError, UnexpectedAnswerError):
            raise Unanswered("tokens") from None
        prompt = [*self._prompt, *tokens]
        held = self._model.held_context()
        room = _UNBOUNDED if held is None else held - len(prompt)
        if room < 1:
            raise Unanswered("context_length")
        body: Json = {each: value for each, value in self._asked.items() if each not in _OF_CHATS and value is not None}
        body |= {"model": name, "prompt": prompt, "max_tokens": room if most is None else min(room, most)}
        ends = [*stop] or self._asked.get("stop")
        if ends:
            body["stop"] = ends
        answer, part = await self._relayed(self._model, self._variant(_COMPLETIONS, body, "candidate"))
        self.parts.append(part)
        found = json_object(answer.body) if answer.stream is None and answer.status == 200 else None
        choices = None if found is None else found.get("choices")
        if found is None or not choices or not isinstance(choices[0].get("text"), str):
            raise Unanswered("answer")
        self.body = found
        sampled = 0 if part.usage is None else part.usage.completion
        return Written(choices[0]["text"], choices[0].get("finish_reason"), sampled)

    async def _told(self, call: EngineCall) -> Json:
        """The engine's answer to a call that its adapter makes."""
        answer, _ = await self._relayed(self._model, self._variant(call.path, call.body | {"model": self._model.public}, "tokenizer"))
        found = json_object(answer.body) if answer.stream is None and answer.status == 200 else None
        if found is None:
            raise UnexpectedAnswerError(f"{call.path} gave no object")
        return found

    def _variant(self, path: str, body: Json, purpose: Purpose) -> Errand:
        """Another model has other tokens, so none may stand in."""
        data = orjson.dumps(body)
        return msgspec.structs.replace(
            self._errand,
            call=Call("POST", path, b"", [JSON], time.perf_counter()),
            body=data,
            fields=read(data, 1),
            openai=path == _COMPLETIONS,
            ask_usage=False,
            may_stand_in=False,
            choice=None,
            purpose=purpose,
        )


def _is_text(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("tool_calls"):
        return False
    return message.get("content") is None or isinstance(message["content"], str)


def completion(text: str, thought: str, finish: str | None, body: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion that says this. body: of the last completion that it was written by."""
    head = {name: body[name] for name in ("id", "created", "model", "system_fingerprint") if name in body}
    if "id" in head:
        head["id"] = f"chatcmpl-{str(head['id']).removeprefix('cmpl-').removeprefix('chatcmpl-')}"
    message = {"role": "assistant", "content": text, "reasoning_content": thought}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return head | {"object": "chat.completion", "choices": [choice]}


def told_more(messages: Any, sentence: str) -> list[Any]:
    """The messages with this at the end of the user's last one, or as one of his where there is none."""
    found = list(messages) if isinstance(messages, list) else []
    for at in range(len(found) - 1, -1, -1):
        message = found[at]
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            found[at] = message | {"content": f"{content}\n\n{sentence}"}
            return found
        if isinstance(content, list):
            found[at] = message | {"content": [*content, {"type": "text", "text": sentence}]}
            return found
    return [*found, {"role": "user", "content": sentence}]
