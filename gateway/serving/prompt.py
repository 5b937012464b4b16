"""A request's body as policies see it (policies/values/prompt.py), and what tells its conversation from others.

Content that is a string, a list of parts, null or anything else gives what text there is in it; what no engine takes, that engine says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gateway.wire.request import Fields
from policies.values.prompt import Prompt, Turn

# Of a longer message, its beginning and its end are looked at; of a longer conversation, its first messages and its last.
_LONGEST_TEXT: Final = 16_384
_MOST_TURNS: Final = 256
# English text; other languages have fewer, and what then overflows goes to a larger model.
_BYTES_PER_TOKEN: Final = 4
_TOKENS_OF_IMAGE: Final = 1_000


class _Message(msgspec.Struct, frozen=True, gc=False):
    role: str | None = None
    content: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct, frozen=True, gc=False):
    type: str | None = None
    text: str | None = None


_messages = msgspec.json.Decoder(list[msgspec.Raw]).decode
_message = msgspec.json.Decoder(_Message).decode
_parts = msgspec.json.Decoder(list[_Part]).decode
_any = msgspec.json.Decoder().decode

Raws = Sequence[msgspec.Raw]


def raws_of(fields: Fields) -> Raws:
    """The messages of a chat, each as it came."""
    try:
        return _messages(fields.messages) if len(bytes(fields.messages)) else ()
    except msgspec.DecodeError:
        return ()


def prompt_of(fields: Fields, raws: Raws, tenant: str, tags: dict[str, str] | None) -> Prompt:
    """What a policy may know of the request."""
    turns: list[Turn] = []
    images = audio = 0
    roles: list[str] = []
    if len(raws) > _MOST_TURNS:
        raws = [*raws[: _MOST_TURNS // 2], *raws[-_MOST_TURNS // 2 :]]
    for raw in raws:
        role, texts, pictures, sounds = _read(raw)
        roles.append(role)
        images, audio = images + pictures, audio + sounds
        if texts:
            turns.append(Turn(role, _short("\n".join(texts))))
    if not raws and (text := _bare(fields.prompt)):
        turns.append(Turn("user", _short(text)))
        roles.append("user")
    text_bytes = len(bytes(fields.messages)) or len(bytes(fields.prompt))
    if images or audio:  # their bytes are not read as text
        text_bytes = sum(len(turn.text) for turn in turns)
    most = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    wanted = bytes(fields.response_format)
    return Prompt(
        turns=tuple(turns),
        tokens=text_bytes // _BYTES_PER_TOKEN + images * _TOKENS_OF_IMAGE,
        max_tokens=int(most) if most is not None and most > 0 else None,
        tools=bytes(fields.tools) not in (b"", b"null", b"[]"),
        json_schema=b'"json_schema"' in wanted or b'"json_object"' in wanted,
        logprobs=bytes(fields.logprobs) not in (b"", b"null", b"false", b"0"),
        images=images > 0,
        audio=audio > 0,
        tool_loop=bool(roles) and roles[-1] in ("tool", "function"),
        user_turns=roles.count("user"),
        tenant=tenant,
        tags=tags or {},
    )


def conversation(tenant: str, raws: Raws) -> tuple[str, str | None]:
    """Keys under which this turn is remembered, and under which the turn before it was; None: it is the first.

    What came before the model's last answer is what was sent with the turn before, so a conversation is known again without an id of its
    own, as long as its client sends back what it sent before.
    """
    last = next((index for index in range(len(raws) - 1, -1, -1) if _read(raws[index])[0] == "assistant"), None)
    whole = hashlib.blake2b(f"{len(tenant)}:{tenant}".encode("utf-8", "replace"), digest_size=16, person=b"conversation")
    before = None
    for index, raw in enumerate(raws):
        if index == last:
            before = whole.hexdigest()
        whole.update(raw)
    return whole.hexdigest(), before


def _read(raw: msgspec.Raw) -> tuple[str, list[str], int, int]:
    """Role, texts, images and sounds of a message."""
    try:
        message = _message(raw)
    except msgspec.DecodeError:
        return "", [], 0, 0
    role = message.role or ""
    content = message.content
    first = bytes(memoryview(content)[:1])
    if first == b'"':
        return role, [msgspec.json.decode(content, type=str)], 0, 0
    if first != b"[":
        return role, [], 0, 0
    try:
        parts = _parts(content)
    except msgspec.DecodeError:
        return role, [part for part in _any(content) if isinstance(part, str)], 0, 0
    kinds = [part.type or "" for part in parts]
    texts = [part.text for part in parts if part.text]
    return role, texts, sum("image" in kind for kind in kinds), sum("audio" in kind for kind in kinds)


def _bare(raw: msgspec.Raw) -> str:
    """The text of `prompt`: a string, or several; token ids have none here."""
    if not len(bytes(raw)):
        return ""
    value: Any = _any(raw)
    if isinstance(value, str):
        return value
    return "\n".join(each for each in value if isinstance(each, str)) if isinstance(value, list) else ""


def _short(text: str) -> str:
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]}\n{text[-half:]}"
