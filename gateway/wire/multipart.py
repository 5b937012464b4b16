"""Reading one small field of a multipart form (RFC 7578) whose files are not to be touched."""

from __future__ import annotations

import re

from gateway.wire.errors import ApiError

_BOUNDARY = re.compile(rb';\s*boundary=(?:"([^"]{1,70})"|([^;\s"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb'content-disposition:\s*form-data\b[^\r\n]*?;\s*name=(?:"([^"\r\n]*)"|([^;\s"]+))', re.IGNORECASE)
_MAX_HEAD = 8192


def form_field(content_type: bytes, body: bytes, name: bytes) -> tuple[int, int] | None:
    """Where the value of the part of that name stands in the body, or None.

    Raises ApiError 400 for a malformed form, and for two such parts: which of them counts would be the backend's guess.
    """
    match = _BOUNDARY.search(content_type)
    if match is None:
        raise _malformed()
    delimiter = b"--" + (match.group(1) or match.group(2))
    line = b"\r\n" + delimiter
    found = None
    at = 0
    if not body.startswith(delimiter):  # a preamble
        at = body.find(line) + len(b"\r\n")
        if at < len(b"\r\n"):
            raise _malformed()
    while body.startswith(delimiter + b"\r\n", at):
        head = at + len(delimiter)
        blank = body.find(b"\r\n\r\n", head, head + _MAX_HEAD)
        value = blank + len(b"\r\n\r\n")
        end = body.find(line, value)
        if blank < 0 or end < 0:
            raise _malformed()
        named = _NAME.search(body, head, blank)
        if named is not None and (named.group(1) or named.group(2)) == name:
            if found is not None:
                shown = name.decode()
                raise ApiError(400, "caller_invalid_value", f"The form holds `{shown}` twice.", param=shown)
            found = value, end
        at = end + len(b"\r\n")
    if not body.startswith(delimiter + b"--", at):
        raise _malformed()
    return found


def _malformed() -> ApiError:
    return ApiError(400, "caller_invalid_value", "The request body is not a whole multipart form.")
