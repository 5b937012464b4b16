"""An answer of a backend, before it is known whether it will be the caller's."""

from __future__ import annotations

import msgspec

from gateway.serving.call import UpstreamCall
from gateway.serving.streams import EventStream, RawStream
from gateway.wire.errors import Header


class Begun(msgspec.Struct, frozen=True):
    """Its head and either its whole body or a stream, which is to be taken (`own`) or dropped (`close`).

    overflow: a refusal because the prompt, with the answer it asks for, is longer than the model's context.
    """

    call: UpstreamCall
    status: int
    headers: list[Header]
    body: bytes = b""
    stream: EventStream | RawStream | None = None
    overflow: bool = False

    def drop(self) -> None:
        """Nobody wants it."""
        if self.stream is not None:
            self.stream.close()
