"""A request's body as policies see it (policies/values/prompt.py), and what tells its conversation from others.

Read are `messages` with their `system`, `prompt`, and of the Responses API `input` with its `instructions`, whose items are messages, calls
of tools and their outputs.

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
_MOST_DIGITS: Final = 12


# Of 6 bytes that a letter is written with as \\uXXXX, some 2.5 would do.
_SAVED_OF_ESCAPE: Final = 3.5
# Items of the Responses API that the model wrote.
_WRITTEN: Final = frozenset(("function_call", "custom_tool_call", "reasoning"))
_OUTPUT: Final = "_call_output"


class _Message(msgspec.Struct, frozen=True, gc=False):
    role: str | None = None
    type: str | None = None
    content: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct, frozen=True, gc=False):
    type: str | None = None
    text: str | None = None
    content: msgspec.Raw = msgspec.Raw()


class _Said(msgspec.Struct, frozen=True, gc=False):
    """What stands in a message's content. answers: it is what a tool gave."""

    texts: tuple[str, ...] = ()
    images: int = 0
    audio: int = 0
    answers: bool = False


_messages = msgspec.json.Decoder(list[msgspec.Raw]).decode
_message = msgspec.json.Decoder(_Message).decode
_parts = msgspec.json.Decoder(list[_Part]).decode
_text = msgspec.json.Decoder(str).decode
_any = msgspec.json.Decoder().decode

Raws = Sequence[msgspec.Raw]


def raws_of(fields: Fields) -> Raws:
    """The messages of a chat, or the items of a response's input, each as it came."""
    raw = fields.messages if memoryview(fields.messages) else fields.input
    try:
        found = _messages(raw) if memoryview(raw) else ()
    except msgspec.DecodeError:
        return ()
    return found if raw is fields.messages or (found and bytes(memoryview(found[0])[:1]) == b"{") else ()


def prompt_of(fields: Fields, raws: Raws, tenant: str, tags: dict[str, str] | None) -> Prompt:
    """What a policy may know of the request."""
    turns: list[Turn] = []
    roles: list[str] = []
    images = audio = 0
    tools, wanted = bytes(fields.tools), bytes(fields.response_format)
    bare = bytes(fields.prompt) or bytes(fields.input)
    before = bytes(fields.system) or bytes(fields.instructions)
    text_bytes = len(tools) + len(before)
    if before and (text := "\n".join(_content(before).texts)):
        turns.append(Turn("system", _short(text)))
    middle = range(_MOST_TURNS // 2, len(raws) - _MOST_TURNS // 2)
    for at, raw in enumerate(raws):
        if at in middle:
            pictures, sounds = _media(raw)
            text_bytes += 0 if pictures or sounds else len(memoryview(raw))
        else:
            role, said = _read(raw)
            roles.append(role)
            if said.texts:
                turns.append(Turn(role, _short("\n".join(said.texts))))
            pictures, sounds = said.images, said.audio
            # The bytes of a picture are not read as text.
            text_bytes += sum(map(len, said.texts)) if pictures or sounds else len(memoryview(raw))
        images, audio = images + pictures, audio + sounds
    if not raws:
        text_bytes += len(memoryview(fields.messages)) or len(bare)
        if text := _bare(bare):
            turns.append(Turn("user", _short(text)))
            roles.append("user")
    escapes = bytes(fields.messages).count(b"\\u") + bare.count(b"\\u") if turns else 0
    return Prompt(
        turns=tuple(turns),
        tokens=max(0, int(text_bytes - escapes * _SAVED_OF_ESCAPE)) // _BYTES_PER_TOKEN + images * _TOKENS_OF_IMAGE,
        max_tokens=_most(fields),
        tools=tools not in (b"", b"null", b"[]"),
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
    last = _last_answer(raws)
    whole = hashlib.blake2b(f"{len(tenant)}:{tenant}".encode("utf-8", "replace"), digest_size=16, person=b"conversation")
    before = None
    for index, raw in enumerate(raws):
        if index == last:
            before = whole.hexdigest()
        whole.update(raw)
    return whole.hexdigest(), before


def answered(raws: Raws) -> bool:
    """Whether the model has had a turn in it."""
    return _last_answer(raws) is not None


def _last_answer(raws: Raws) -> int | None:
    """Where the model's last answer begins, which may be several items; None: it has not answered."""
    found = None
    for index in range(len(raws) - 1, -1, -1):
        if _role(raws[index]) == "assistant":
            found = index
        elif found is not None:
            break
    return found


def _role(raw: msgspec.Raw) -> str:
    """Who said it, content aside."""
    try:
        message = _message(raw)
    except msgspec.DecodeError:
        return ""
    if message.role is not None or message.type is None:
        return message.role or ""
    return "assistant" if message.type in _WRITTEN else "tool" if message.type.endswith(_OUTPUT) else ""


def _read(raw: msgspec.Raw) -> tuple[str, _Said]:
    """Role and content of a message."""
    try:
        message = _message(raw)
    except msgspec.DecodeError:
        return "", _Said()
    said = _content(message.content)
    return "tool" if said.answers else message.role or _role(raw), said


def _content(content: msgspec.Raw | bytes, within: bool = False) -> _Said:
    """What stands in content of any shape. within: of a part that is a tool's answer."""
    first = bytes(memoryview(content)[:1])
    if first == b'"':
        return _Said((_text(content),))
    if first != b"[":
        return _Said()
    try:
        parts = _parts(content)
    except msgspec.DecodeError:
        bare = _plain(content)
        return _Said(tuple(part for part in bare if isinstance(part, str)) if isinstance(bare, list) else ())
    texts: list[str] = []
    images = audio = 0
    answers = False
    for part in parts:
        kind = part.type or ""
        if kind == "tool_result" and not within:
            inner = _content(part.content, within=True)
            texts += inner.texts
            images, audio, answers = images + inner.images, audio + inner.audio, True
        elif part.text:
            texts.append(part.text)
        images, audio = images + ("image" in kind), audio + ("audio" in kind)
    return _Said(tuple(texts), images, audio, answers)


def _media(raw: msgspec.Raw) -> tuple[int, int]:
    """Images and sounds of a message of which no more is looked at."""
    data = bytes(raw)
    if b"image" not in data and b"audio" not in data:
        return 0, 0
    _, said = _read(raw)
    return said.images, said.audio


def _most(fields: Fields) -> int | None:
    """Tokens of answer that are asked for."""
    most = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    if most is None:
        most = whole_number(fields.max_output_tokens)
    return int(most) if most is not None and most > 0 else None


def whole_number(raw: msgspec.Raw) -> int | None:
    """The number that stands there; None: nothing, or something else."""
    digits = bytes(raw)
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _bare(raw: bytes) -> str:
    """The text of `prompt` or `input`: a string, or several; token ids have none here."""
    value = _plain(raw) if raw else None
    if isinstance(value, str):
        return value
    return "\n".join(each for each in value if isinstance(each, str)) if isinstance(value, list) else ""


def _plain(raw: msgspec.Raw | bytes) -> Any:
    """The value; None where it holds what cannot be one here, such as a number beyond all bounds."""
    try:
        return _any(raw)
    except msgspec.DecodeError:
        return None


def _short(text: str) -> str:
    half = _LONGEST_TEXT // 2
    return text if len(text) <= _LONGEST_TEXT else f"{text[:half]}\n{text[-half:]}"
