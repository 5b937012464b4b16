"""What a test asks of the mock: one Behaviour per request, kept in a Script.

As JSON (control endpoint, script file) a Behaviour is an object with the same field names; `bytes` are base64 there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Usage = Literal["exact", "none", "null", "empty", "partial", "in_every_chunk", "openai"]
BeforeHeaders = -1
"""As a number of events: before the status line."""


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool; `arguments` is JSON text, sent as it is."""

    name: str
    arguments: str = "{}"
    id: str | None = None


class Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one choice says; whatever is None or empty is derived from the request.

    `tokens` are streamed one by one as given, `text` is cut into words. `finish_reason` overrides the natural one.
    """

    text: str | None = None
    tokens: tuple[str, ...] | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None


class Behaviour(Say, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How one request is answered. The default is an engine in good health.

    Which requests: `times` requests (0: all from now on) whose path is `path` (None: any POST below /v1/).

    Content: the fields of Say, for every choice; `choices[i]` for choice i (repeated when n is larger). `events`
    replaces the generated SSE payloads verbatim. A `status` other than 200 or a body (`body`: text, `body_bytes`) is
    answered verbatim; `headers` are added, or replace those of the same name. `raw` replaces the whole answer, status
    line included, and ends the connection.

    Usage: exact; none (even when asked for); null, empty ({}), partial (prompt_tokens only) in every chunk;
    in_every_chunk (counts so far, asked for or not); openai (null in every chunk but the last).

    Time, in seconds: `delay_headers_s`, then the head, `first_token_delay_s` and 1 / `prefill_tokens_per_second` for each
    prompt token that was not cached, then one token per choice every 1 / `tokens_per_second` (0: as fast as possible).
    None: as in the mock's default behaviour.

    Wire: `split` is how answers are written: None as the engine does (one HTTP chunk per event, one write per step),
    "event" one write per event, "all" one HTTP chunk for the whole stream, a number: so many bytes of body per HTTP
    chunk and write. `comments` are lines sent before each event, each ended by `line_end` (true: ': ping', ':', ':
    '). `framing` is a length or chunked as fits, or forced; "close": the end of the connection ends the body.

    Cuts: after so many events ([DONE] counts; 0: after the head, -1: before it) or bytes of body, the connection is
    reset (RST), closed (FIN, nothing terminated) or stalled: silent for `stall_s` (None: for ever), or with a comment
    each `stall_comments_s`. `cut_wait_s` passes between the last byte and a reset or close. `close_connection_after`
    ends the connection after a whole answer, with or without saying so in a header.
    """

    path: str | None = None
    times: int = 1

    status: int = 200
    headers: dict[str, str] | tuple[tuple[str, str], ...] = ()
    body: str | None = None
    body_bytes: bytes | None = None
    raw: bytes | None = None
    events: tuple[str, ...] | None = None
    choices: tuple[Say, ...] = ()
    usage: Usage = "exact"

    delay_headers_s: float = 0.0
    first_token_delay_s: float | None = None
    prefill_tokens_per_second: float | None = None
    tokens_per_second: float | None = None
    never_answer: bool = False

    split: int | Literal["event", "all"] | None = None
    line_end: Literal["\n", "\r\n", "\r"] = "\n"
    comments: bool | tuple[str, ...] = False
    multi_line_data: bool = False
    framing: Literal["auto", "chunked", "close"] = "auto"
    content_encoding: Literal["gzip", "deflate", "br"] | None = None
    role_every_chunk: bool | str = False
    end_without_done: bool = False
    reject_include_usage: bool = False
    ignore_stream: bool = False

    reset_after_events: int | None = None
    close_after_events: int | None = None
    stall_after_events: int | None = None
    reset_after_bytes: int | None = None
    close_after_bytes: int | None = None
    stall_s: float | None = None
    stall_comments_s: float | None = None
    cut_wait_s: float = 0.0
    close_connection_after: Literal["header", "silent"] | None = None

    def __post_init__(self) -> None:
        if self.times < 0 or (isinstance(self.split, int) and self.split < 1):
            raise ValueError("times must be at least 0, split at least 1")

    @property
    def verbatim(self) -> bytes | None:
        """The body to be sent as it is, if one was given."""
        return self.body.encode() if self.body is not None else self.body_bytes

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(self.headers.items()) if isinstance(self.headers, dict) else self.headers

    @property
    def comment_lines(self) -> tuple[str, ...]:
        return ((": ping", ":", ": ") if self.comments else ()) if isinstance(self.comments, bool) else self.comments

    @property
    def role(self) -> str | None:
        """The role repeated in every delta, if any."""
        return ("assistant" if self.role_every_chunk else None) if isinstance(self.role_every_chunk, bool) else self.role_every_chunk

    def say(self, index: int) -> Say:
        """What the choice `index` says."""
        return self.choices[index % len(self.choices)] if self.choices else self


class Script:
    """The queue of behaviours for the next requests, and the one for all others."""

    def __init__(self, default: Behaviour) -> None:
        self.default = default
        self._queue: list[tuple[Behaviour, int]] = []

    def add(self, behaviours: Iterable[Behaviour]) -> None:
        self._queue.extend((behaviour, behaviour.times) for behaviour in behaviours)

    def clear(self) -> None:
        self._queue.clear()

    def take(self, method: str, path: str) -> Behaviour:
        """The first queued behaviour that fits, used up by one; else the default (POST below /v1/) or good health."""
        generates = method == "POST" and path.startswith("/v1/")
        for position, (behaviour, left) in enumerate(self._queue):
            if behaviour.path == path or (behaviour.path is None and generates):
                if left == 1:
                    del self._queue[position]
                elif left > 1:
                    self._queue[position] = (behaviour, left - 1)
                return behaviour
        return self.default if generates else Behaviour()


def read_script(text: bytes) -> list[Behaviour]:
    """A JSON list of behaviours. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return msgspec.json.decode(text, type=list[Behaviour])
