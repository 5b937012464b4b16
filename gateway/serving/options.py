"""What a caller may ask of the gateway itself: the body object `trilemma` and the headers of the same names.

Precedence: virtual model < body < header; the operator's caps win over all, and what they clip is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from gateway.wire.errors import ApiError, Header, shown
from policies.values.plan import Reasoning

Include = Literal["decision", "candidates", "progress"]
"""See included.py."""


class Preference(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """How much each counts: numbers from 0, of which only the proportions matter."""

    quality: float = 0.0
    cost: float = 0.0
    latency: float = 0.0


class Options(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """deadline_ms: the whole request, milliseconds. max_cost: USD. budget_tokens: of answer. preference: see there. reasoning: how much the
    model thinks. strategy, policy: names. session_id, tags: labels for the record. learn: whether
    policies may learn from it. dry_run: decide, and tell of that instead of doing it. include: see included.py."""

    policy: str | None = None
    strategy: str | None = None
    deadline_ms: int | None = None
    max_cost: float | None = None
    budget_tokens: int | None = None
    preference: Preference | None = None
    reasoning: Reasoning | None = None
    session_id: str | None = None
    tags: dict[str, str] | None = None
    learn: bool | None = None
    dry_run: bool | None = None
    include: list[Include] | None = None


NONE = Options()

_decode = msgspec.json.Decoder(Options).decode
_FIELD = re.compile(r"`([^`]*)`")
_AT = re.compile(r" - at `\$\.?([^`]*)`")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?|\.[0-9]{1,12}")
_PREFIX = b"x-trilemma-"
_HEADERS: Mapping[bytes, str] = {
    b"x-trilemma-strategy": "strategy",
    b"x-trilemma-deadline-ms": "deadline_ms",
    b"x-trilemma-budget-tokens": "budget_tokens",
    b"x-trilemma-max-cost": "max_cost",
    b"x-trilemma-preference": "preference",
    b"x-trilemma-session-id": "session_id",
}


def options(raw: bytes, headers: Sequence[Header]) -> Options:
    """Reads both places. Raises ApiError 400 naming what is unknown or wrong."""
    found = _from_body(raw) if raw and raw != b"null" else NONE
    asked = {name: value for name, value in headers if name.startswith(_PREFIX)}
    if asked:
        found = _with_headers(found, asked)
    if found.deadline_ms is not None and not 1 <= found.deadline_ms <= 86_400_000:
        raise _wrong("trilemma.deadline_ms", "must lie between 1 and 86400000")
    if found.budget_tokens is not None and not 1 <= found.budget_tokens <= 2**31 - 1:
        raise _wrong("trilemma.budget_tokens", "must lie between 1 and 2147483647")
    if found.max_cost is not None and not 0 < found.max_cost <= 1e6:
        raise _wrong("trilemma.max_cost", "must be a number of USD above 0")
    if found.preference is not None:
        _check_preference(found.preference)
    if found.tags is not None and len(found.tags) > 16:
        raise _wrong("trilemma.tags", "may hold 16 tags")
    return found


def _from_body(raw: bytes) -> Options:
    try:
        return _decode(raw)
    except msgspec.ValidationError as error:
        text = str(error)
        where = _AT.search(text)
        reason = _AT.sub("", text)
        if "unknown field" in reason and (field := _FIELD.search(reason)):
            name = f"trilemma.{shown(field.group(1))}"
            raise ApiError(400, "caller_unknown_parameter", f"Unknown parameter `{name}`.", param=name) from None
        raise _wrong(f"trilemma.{where.group(1)}" if where and where.group(1) else "trilemma", reason) from None


def _with_headers(found: Options, asked: dict[bytes, bytes]) -> Options:
    changes: dict[str, str | int | float | Preference] = {}
    for header, value in asked.items():
        name = _HEADERS.get(header)
        if name is None:
            named = shown(header.decode("latin-1"))
            raise ApiError(400, "caller_unknown_parameter", f"Unknown header `{named}`.", param=named)
        text = value.decode("latin-1").strip()
        if name in ("deadline_ms", "budget_tokens"):
            if not (text.isascii() and text.isdigit() and len(text) < 12):
                unit = "milliseconds" if name == "deadline_ms" else "tokens"
                raise _wrong(header.decode(), f"must be a whole number of {unit}")
            changes[name] = int(text)
        elif name == "max_cost":
            if not _NUMBER.fullmatch(text):
                raise _wrong(header.decode(), "must be a number of USD")
            changes[name] = float(text)
        elif name == "preference":
            changes[name] = _preference(header.decode(), text)
        elif text:
            changes[name] = text[:200]
    return msgspec.structs.replace(found, **changes)


def _preference(header: str, text: str) -> Preference:
    """`quality=0.6,cost=0.3,latency=0.1`; what is not named counts nothing."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition("="))
        if name not in Preference.__struct_fields__ or name in found or not _NUMBER.fullmatch(number):
            raise _wrong(header, "should look like quality=0.6,cost=0.3,latency=0.1")
        found[name] = float(number)
    return Preference(**found)


def _check_preference(given: Preference) -> None:
    if not all(0 <= each <= 1e6 for each in (given.quality, given.cost, given.latency)) or not given.quality + given.cost + given.latency:
        raise _wrong("trilemma.preference", "takes numbers from 0, one of them above it")


def _wrong(param: str, reason: str) -> ApiError:
    return ApiError(400, "caller_invalid_value", f"`{param}`: {reason}.", param=param)
