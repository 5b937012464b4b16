"""Content codings of backends' answers: undone where the standard library can, so that usage can be read and framing is ours."""

from __future__ import annotations

import zlib

_GZIP = zlib.MAX_WBITS | 16
# What one read of compressed bytes may become: answers of engines shrink to a tenth, not to a thousandth.
_MOST = 64 << 20


class Inflater:
    """Undoes `gzip` (one member or several) or `deflate` (zlib-wrapped or raw) incrementally. An empty body stays empty."""

    __slots__ = ("_gzip", "_head", "_inflate")

    def __init__(self, coding: bytes) -> None:
        self._gzip = coding in (b"gzip", b"x-gzip")
        self._inflate: zlib._Decompress | None = None
        self._head = b""

    def feed(self, data: bytes) -> bytes:
        """Decoded bytes. Raises zlib.error, also for a bomb."""
        if self._inflate is None:
            data = self._head = self._head + data
            if len(data) < 2:
                return b""
            self._inflate = zlib.decompressobj(_GZIP if self._gzip else _deflate_window(data))
        out = _bounded(self._inflate, data, _MOST)
        while data := self._inflate.unused_data:
            if not self._gzip:
                raise zlib.error("data after the end of the compressed body")
            self._inflate = zlib.decompressobj(_GZIP)
            out += _bounded(self._inflate, data, _MOST - len(out))
        return out

    def close(self) -> bytes:
        """What is left. Raises zlib.error on a truncated body."""
        if self._inflate is None and not self._head:
            return b""
        rest = self._inflate.flush() if self._inflate is not None else b""
        if self._inflate is None or not self._inflate.eof:
            raise zlib.error("the compressed body ended early")
        return rest


def _bounded(inflate: zlib._Decompress, data: bytes, most: int) -> bytes:
    out = inflate.decompress(data, max(most, 1))
    if inflate.unconsumed_tail:
        raise zlib.error("the compressed body inflates beyond measure")
    return out


def _deflate_window(data: bytes) -> int:
    """zlib's header (RFC 1950, 2.2) or none, as some servers send it."""
    wrapped = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
    return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS


def inflater(coding: bytes) -> Inflater | None:
    """An inflater for a `content-encoding`, or None for identity and for codings that are relayed as they are."""
    coding = coding.strip().lower()
    return Inflater(coding) if coding in (b"gzip", b"x-gzip", b"deflate") else None
