"""What a policy may know of a request: its words and its shape. Never stored."""

from __future__ import annotations

import msgspec


class Turn(msgspec.Struct, frozen=True, gc=False):
    """A message's text, all its text parts together. role: as it came; `user` for a bare prompt."""

    role: str
    text: str


class Prompt(msgspec.Struct, frozen=True):
    """A request as policies see it.

    turns: every message that has text, in order, system messages too. tokens: of the prompt, estimated. max_tokens: of the answer, as it
    was asked for. tools, json_schema, logprobs, images, audio: whether the request needs them, anywhere in its history. tool_loop: the last
    message is a tool's answer. user_turns: messages of the user. tenant, tags: whose it is and what it is labelled with.
    """

    turns: tuple[Turn, ...] = ()
    tokens: int = 0
    max_tokens: int | None = None
    tools: bool = False
    json_schema: bool = False
    logprobs: bool = False
    images: bool = False
    audio: bool = False
    tool_loop: bool = False
    user_turns: int = 1
    tenant: str = ""
    tags: dict[str, str] = {}
