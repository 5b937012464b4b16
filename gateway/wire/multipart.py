"""Reading one small field of a multipart form (RFC 7578) whose files are not to be touched."""

from __future__ import annotations

import re

_BOUNDARY = re.compile(rb'boundary=(?:"([^"]{1,70})"|([^;\s]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb'content-disposition:\s*form-data\b[^\r\n]*?;\s*name="([^"\r\n]*)"', re.IGNORECASE)


def form_field(content_type: bytes, body: bytes, name: bytes) -> tuple[int, int] | None:
    """Where the value of the first part of that name stands in the body, or None."""
    match = _BOUNDARY.search(content_type)
    if match is None:
        return None
    delimiter = b"--" + (match.group(1) or match.group(2))
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    while at >= 0 and body.startswith(delimiter + b"\r\n", at):
        head = at + len(delimiter)
        value = body.find(b"\r\n\r\n", head, head + 8192)
        end = body.find(b"\r\n" + delimiter, head)
        if value < 0 or end < 0:
            return None
        named = _NAME.search(body, head, value)
        if named is not None and named.group(1) == name:
            return value + 4, end
        at = end + 2
    return None
