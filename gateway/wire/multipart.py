"""Reading one small field of a multipart form (RFC 7578) whose files are not to be touched.

Parsers differ over odd forms, and a backend must not read another model there than was read here. So only plain forms pass, which all
parsers read alike and all HTTP clients write: one boundary, nothing before it, every part with one unfolded, unescaped disposition.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.wire.errors import ApiError

_MAX_PARTS: Final = 1_000
_MAX_HEAD: Final = 8_192

_VALUE = rb'(?:"((?:[^"\r\n]*[^"\\\r\n])?)"|([^\s";,\\]+))'  # no backslash before a quote: is it an escape, or the end?
_PARAMETERS = rb"((?:[ \t]*;[ \t]*[\w*-]+=" + _VALUE + rb")*)[ \t]*\Z"
_KIND = re.compile(rb"multipart/form-data" + _PARAMETERS, re.IGNORECASE)
_DISPOSITION = re.compile(rb"content-disposition:[ \t]*form-data" + _PARAMETERS, re.IGNORECASE)
_PARAMETER = re.compile(rb"([\w*-]+)=" + _VALUE)
_OTHER = re.compile(rb"(?!content-disposition)[\w-]+:[^\r\n]*\Z", re.IGNORECASE)
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=?-]{1,70}\Z")


def form_field(content_type: bytes, body: bytes, name: bytes) -> tuple[int, int] | None:
    """Where the value of the part of that name stands in the body; None when there is none. Raises ApiError 400 for other than one."""
    delimiter = b"--" + _boundary(content_type)
    if not body.startswith(delimiter):
        raise _odd("it does not begin with its boundary")
    found = None
    at = len(delimiter)
    for _ in range(_MAX_PARTS):
        if body.startswith(b"--", at):
            return found
        head = body.find(b"\r\n\r\n", at, at + _MAX_HEAD)
        end = body.find(b"\r\n" + delimiter, head + 4)
        if head < 0 or end < 0 or not body.startswith(b"\r\n", at):
            raise _odd("a part is not whole")
        if _name(body[at + 2 : head]) == name:
            if found is not None:
                raise _odd("a field is named twice", name.decode())
            found = head + 4, end
        at = end + 2 + len(delimiter)
    raise _odd("it has too many parts")


def _boundary(content_type: bytes) -> bytes:
    match = _KIND.match(content_type)
    given = [] if match is None else _PARAMETER.findall(match.group(1))
    boundaries: list[bytes] = [quoted or token for key, quoted, token in given if key.lower() == b"boundary"]
    charsets = {(quoted or token).lower() for key, quoted, token in given if key.lower() == b"charset"}
    if len(boundaries) != 1 or len(boundaries) + len(charsets) != len(given) or not charsets <= {b"utf-8"}:
        raise _odd("its content type has other parameters than one boundary")
    if not _BOUNDARY.match(boundaries[0]):
        raise _odd("its boundary is none")
    return boundaries[0]


def _name(head: bytes) -> bytes:
    """The name of a part."""
    dispositions = []
    for line in head.split(b"\r\n"):
        match = _DISPOSITION.match(line)
        if match is not None:
            dispositions.append(match.group(1))
        elif not _OTHER.match(line):
            raise _odd("a part has a header that is none")
    given = [_PARAMETER.findall(each) for each in dispositions]
    names: list[tuple[bytes, bytes]] = [
        (key.lower(), quoted or token) for each in given for key, quoted, token in each if key.lower().startswith(b"name")
    ]
    if len(dispositions) != 1 or len(names) != 1 or names[0][0] != b"name":
        raise _odd("a part has no plain name, or several")
    return names[0][1]


def _odd(what: str, param: str | None = None) -> ApiError:
    return ApiError(400, "caller_invalid_value", f"The form cannot be read in one way only: {what}.", param=param)
