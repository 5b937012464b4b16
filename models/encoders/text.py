"""The text of a conversation as encoders read it: every message, in bounded time, and each message only once.

A conversation is read anew with each of its turns, so a value that is a sum over messages is remembered by message (`Memo`). What is
read of a message depends on how many there are and on nothing else, so that a value never depends on what is remembered.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

V = TypeVar("V")

# Messages, and characters, that are read of a conversation.
MESSAGES: Final = 128
CHARACTERS: Final = 16_384
# Characters of a message that are read however many there are.
_LEAST: Final = 64


class Message(Protocol):
    """A message's text, all its parts together, and whose it is: `user`, `assistant`, `system`, ..."""

    @property
    def role(self) -> str: ...
    @property
    def text(self) -> str: ...


class Request(Protocol):
    """What encoders read of a request. turns: its messages that have text. user_turns: messages of the user. max_tokens: of the answer."""

    @property
    def turns(self) -> Sequence[Message]: ...
    @property
    def user_turns(self) -> int: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def tools(self) -> bool: ...
    @property
    def json_schema(self) -> bool: ...
    @property
    def images(self) -> bool: ...


class Excerpt(NamedTuple):
    """What is read of a message. chars: the length of the whole."""

    role: str
    text: str
    chars: int


def excerpts(messages: Sequence[Message], budget: int = CHARACTERS, most: int = MESSAGES) -> list[Excerpt]:
    """What is read of each message: its beginning and its end, if it is longer than its share of `budget` characters.

    The share is budget / n with n rounded up to a power of two, so a conversation that grows is seldom cut in another way. Of more than
    `most` messages the first eighth of `most` is read, and the last ones.
    """
    messages, share = read_of(messages, budget, most)
    return [Excerpt(each.role, cut(each.text, share), len(each.text)) for each in messages]


def read_of(messages: Sequence[Message], budget: int, most: int) -> tuple[Sequence[Message], int]:
    """Those that are read, and how many characters of each."""
    if len(messages) > most:
        first = most // 8
        messages = [*messages[:first], *messages[first - most :]]
    return messages, max(_LEAST, budget >> max(0, len(messages) - 1).bit_length())


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters: the beginning and the end of a longer one."""
    if len(text) <= most:
        return text
    half = most // 2
    return text[:half] + text[-half:]


def utf8(text: str) -> bytes:
    """The text's bytes; half a surrogate pair, which JSON can hold, is a question mark."""
    return text.encode("utf-8", "replace")


def valid(text: str) -> str:
    """The text as libraries take it: without halves of surrogate pairs."""
    return text if text.isascii() else utf8(text).decode()


class Memo(Generic[V]):
    """The values of the texts that were asked for last, at most `size`. It keeps digests, never texts. Safe in threads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[bytes, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def value(self, text: str, make: Callable[[str], V]) -> V:
        """The text's value, made by `make` if it is not known. `make` must say the same for the same text."""
        key = blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()  # as below: it is asked for with every message
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                return found
        found = make(text)
        self.put(key, found)
        return found

    @staticmethod
    def key(text: str) -> bytes:
        """What a text is known by."""
        return blake2b(utf8(text), digest_size=16).digest()

    def get(self, key: bytes) -> V | None:
        """The value, if it is known."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
        return found

    def put(self, key: bytes, value: V) -> None:
        """Remember a value; the one that was not asked for the longest may go."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._size:
                self._values.popitem(last=False)
