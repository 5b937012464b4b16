"""Content codings of backends' answers: undone where the standard library can, so that usage can be read and framing is ours."""

from __future__ import annotations

import zlib


class Inflater:
    """Undoes `gzip` or `deflate` (zlib-wrapped or raw) incrementally."""

    __slots__ = ("_inflate", "_raw_tried")

    def __init__(self, coding: bytes) -> None:
        gzip = coding in (b"gzip", b"x-gzip")
        self._inflate = zlib.decompressobj(31 if gzip else 15)
        self._raw_tried = gzip

    def feed(self, data: bytes) -> bytes:
        """Decoded bytes. Raises zlib.error."""
        try:
            out = self._inflate.decompress(data)
        except zlib.error:
            if self._raw_tried:
                raise
            self._inflate = zlib.decompressobj(-15)  # "deflate" without its zlib wrapper, as some servers send it
            out = self._inflate.decompress(data)
        self._raw_tried = True
        return out

    def close(self) -> bytes:
        """What is left. Raises zlib.error on a truncated body."""
        rest = self._inflate.flush()
        if not self._inflate.eof:
            raise zlib.error("the compressed body ended early")
        return rest


def inflater(coding: bytes | None) -> Inflater | None:
    """An inflater for a `content-encoding`, or None for identity and for codings that are relayed as they are."""
    coding = (coding or b"").strip().lower()
    return Inflater(coding) if coding in (b"gzip", b"x-gzip", b"deflate") else None
