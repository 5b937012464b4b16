"""`ETag` and `If-Match`: nobody overwrites what they have not seen (RFC 9110, 13.1.1; RFC 6585, 3)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from fastapi import Request

from gateway.wire.errors import ApiError

_TAG: Final = re.compile(r'\s*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*')


def etag(hash_: str) -> str:
    """The header's value."""
    return f'"{hash_}"'


def instead_of(request: Request) -> Callable[[str], bool] | None:
    """Whether the caller means to change a version with this hash; None: whichever there is, which is written `*`.

    Raises ApiError 428 without `If-Match`, 400 when it is none.
    """
    given = request.headers.getlist("if-match")
    if not given:
        message = "Send `If-Match` with the `ETag` of what is to be replaced, as GET /admin/config gives it."
        raise ApiError(428, "caller_precondition_required", message, param="If-Match")
    if len(given) == 1 and given[0].strip() == "*":
        return None
    tags = set()
    for each in ",".join(given).split(","):
        match = _TAG.fullmatch(each)
        if match is None:
            raise ApiError(400, "caller_invalid_value", "`If-Match` should be an ETag in double quotes.", param="If-Match")
        if match[1] is None:  # weak ones never match
            tags.add(match[2])
    return lambda hash_: hash_ in tags
