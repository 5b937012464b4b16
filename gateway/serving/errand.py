"""What is asked of a backend, whichever it will be."""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec

from gateway.serving.call import Call
from gateway.wire.request import Fields, rewrite

_MODEL_IN_QUERY = re.compile(rb"(?<![^&])model=[^&]*")


class Errand(msgspec.Struct, frozen=True):
    """What is asked of a backend.

    fields: what was read of the body. form: where a form's `model` stands. ask_usage: ask for the usage chunk, and strip it. openai: the
    path speaks OpenAI's completion formats (JSON answers, streams that end with `[DONE]`). may_stand_in: another model's answer would do,
    for what is asked for is text; vectors and scores of another model would silently spoil what the caller has of this one. idle_s: the
    longest silence the caller bears.
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

    def body_for(self, backend_model: str) -> bytes:
        """The body as it goes to a backend that knows the model by that name."""
        model = None if backend_model == self.fields.model else backend_model
        if self.form is not None:
            return self.body if model is None else self.body[: self.form[0]] + model.encode() + self.body[self.form[1] :]
        if not self.body or (model is None and not self.ask_usage and not len(bytes(self.fields.trilemma))):
            return self.body
        return rewrite(self.body, self.fields, model=model, ask_usage=self.ask_usage)

    def target_for(self, backend_model: str) -> str:
        """Path and query; where the model is named in the query, by the backend's name for it."""
        query = self.call.query
        if not query:
            return self.call.path
        if not self.body and backend_model != self.fields.model:
            query = _MODEL_IN_QUERY.sub(b"model=" + quote(backend_model, safe="").encode(), query)
        return f"{self.call.path}?{query.decode('ascii')}"
