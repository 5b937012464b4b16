"""What is asked of a backend, whichever it will be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from gateway.engines.reasoning import reasoning_members, thinking_members
from gateway.serving.call import Call, Purpose, Receipt
from gateway.serving.choice import Choice
from gateway.serving.prompt import whole_number
from gateway.wire.errors import Header
from gateway.wire.request import Fields, rewrite, with_members

# What bounds the answer, by path; where none is set, the last is.
_BOUNDS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "/v1/chat/completions": ("max_completion_tokens", "max_tokens"),
        "/v1/completions": ("max_completion_tokens", "max_tokens"),
        "/v1/messages": ("max_tokens",),
        "/v1/responses": ("max_output_tokens",),
    }
)
_MODEL_IN_QUERY = re.compile(rb"(?<![^&])model=[^&]*")

Onward = Callable[[Sequence[Header], Receipt], list[Header]]
"""The headers of a request's newest call, as they name its place in a trace."""


class Errand(msgspec.Struct, frozen=True):
    """What is asked of a backend.

    fields: what was read of the body. form: where a form's `model` stands. ask_usage: ask for the usage chunk, and strip it. openai: the
    path speaks OpenAI's completion formats (JSON answers, streams that end with `[DONE]`). may_stand_in: another model's answer would do,
    for what is asked for is text; vectors and scores of another model would silently spoil what the caller has of this one. idle_s: the
    longest silence the caller bears. onward: what is done to the headers of each call; None: the caller's trace goes on as it came.
    choice: the plan that a policy chose; None: a real model was asked for. purpose: what its calls are for.
    thinking: tokens of thought that the answer may have, where the engine has a bound for them.
    """

    call: Call
    body: bytes
    fields: Fields
    form: tuple[int, int] | None
    ask_usage: bool
    openai: bool
    may_stand_in: bool
    idle_s: float | None
    session: str | None = None
    onward: Onward | None = None
    choice: Choice | None = None
    purpose: Purpose = "served"
    thinking: int | None = None

    @property
    def prompt(self) -> memoryview:
        """What the engine sees first, as it came."""
        return memoryview(self.fields.messages) or memoryview(self.fields.prompt)

    @property
    def prompt_bytes(self) -> int | None:
        """How much text the engine has to read, about; None when it is not text that it answers with."""
        return (len(self.prompt) or len(self.body)) if self.may_stand_in else None

    @property
    def salt(self) -> bytes:
        """What keeps equal prompts apart in an engine's cache."""
        return bytes(self.fields.cache_salt)

    def body_for(self, backend_model: str, engine: str) -> bytes:
        """The body as it goes to a backend that knows the model by that name. engine: as its adapter is called."""
        model = None if backend_model == self.fields.model else backend_model
        if self.form is not None:
            return self.body if model is None else self.body[: self.form[0]] + model.encode() + self.body[self.form[1] :]
        body = self.body
        if body and (model is not None or self.ask_usage or len(bytes(self.fields.trilemma))):
            body = rewrite(body, self.fields, model=model, ask_usage=self.ask_usage)
        changes = self._planned(engine) if self.choice is not None and body else {}
        if self.thinking is not None:
            changes.update(thinking_members(engine, self.thinking))
        return with_members(body, changes) if changes else body

    def _planned(self, engine: str) -> dict[str, bytes]:
        """What the chosen plan says of the answer: how long it may be, how much the model thinks. What the caller set by itself stays."""
        choice, fields = self.choice, self.fields
        found: dict[str, bytes] = {}
        if choice is None or (choice.most is None and choice.reasoning is None):
            return found
        bounds = _BOUNDS.get(self.call.path)
        if bounds is None:
            return found
        if choice.most is not None:
            asked = {name: self._asked(name) for name in bounds}
            given = {name: number for name, number in asked.items() if number is not None} or {bounds[-1]: -1}
            if engine == "llama.cpp" and len(bytes(fields.n_predict)):  # its own word for it, which it heeds first
                own = whole_number(fields.n_predict)
                given["n_predict"] = -1 if own is None else own
            # Each of them: engines differ in which of two they heed.
            found.update({name: b"%d" % choice.most for name, number in given.items() if not 0 <= number <= choice.most})
        told = len(bytes(fields.reasoning_effort)) or len(bytes(fields.chat_template_kwargs))
        if choice.reasoning is not None and not told and self.call.path == "/v1/chat/completions":
            found.update(reasoning_members(engine, choice.reasoning))
        return found

    def _asked(self, name: str) -> float | None:
        """Tokens of answer that the caller asks for under that name; None: nothing, or nothing that is a number."""
        if name == "max_output_tokens":
            return whole_number(self.fields.max_output_tokens)
        return self.fields.max_tokens if name == "max_tokens" else self.fields.max_completion_tokens

    def target_for(self, backend_model: str) -> str:
        """Path and query; where the model is named in the query, by the backend's name for it."""
        query = self.call.query
        if not query:
            return self.call.path
        if not self.body and backend_model != self.fields.model:
            query = _MODEL_IN_QUERY.sub(b"model=" + quote(backend_model, safe="").encode(), query)
        return f"{self.call.path}?{query.decode('ascii')}"
