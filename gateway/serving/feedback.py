"""What callers say of answers: read strictly, taken at once, stored with the next rows (store/joining.py makes outcomes of it).

box = FeedbackBox(writer.put)
box.ended(receipt)                            each request that has ended
taken = box.take(principal, said, most)       what somebody says; nothing waits for the database
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from gateway.access.keys import Principal
from gateway.serving.call import Receipt
from gateway.store.writer import Row
from gateway.wire.errors import ApiError, retry_after

Status = Literal["joined", "pending", "duplicate"]
Put = Callable[[str, Row], bool]
Heard = Callable[["Said"], None]

QUALITY: Final = "quality"
VERDICTS: Final[Mapping[str, float]] = {"good_fit": 1.0, "overprovisioned": 1.0, "underpowered": 0.0, "failed": 0.0}
"""Each as a value of the metric `quality`: whether the answer was good enough. That less would have done is no fault of the answer."""

FIELDS: Final = ("decision_id", "metric", "value", "verdict", "feedback_id")
METRIC: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
FEEDBACK_ID: Final = r"^[A-Za-z0-9._:/@+-]{1,128}$"

_METRIC: Final = re.compile(METRIC)
_FEEDBACK_ID: Final = re.compile(FEEDBACK_ID)
_HOUR_S: Final = 3_600.0
_REMEMBERED: Final = 8_192
_FULL_S: Final = 5.0


class Said(msgspec.Struct, frozen=True):
    """What somebody says of a decision. value: 0 to 1, good is 1. id: the caller's own; None: it gave none."""

    decision_id: str
    metric: str
    value: float
    verdict: str | None = None
    id: str | None = None


class Taken(msgspec.Struct, frozen=True):
    """status: `joined`: the decision is stored, or will be before this is; `pending`: whether it is, is not known here; `duplicate`: this
    was said before, and counts no second time."""

    id: str
    status: Status


def said(fields: Mapping[str, Any]) -> Said:
    """What the fields of a body say. Raises ApiError 400."""
    decision_id, metric, verdict, feedback_id = (fields.get(name) for name in ("decision_id", "metric", "verdict", "feedback_id"))
    if not isinstance(decision_id, str):
        raise _wrong("decision_id", "should be the `x-trilemma-decision-id` of an answer")
    if feedback_id is not None and not (isinstance(feedback_id, str) and _FEEDBACK_ID.fullmatch(feedback_id)):
        raise _wrong("feedback_id", "should hold 1 to 128 letters, digits and . _ : / @ + -")
    if verdict is not None:
        if metric is not None or fields.get("value") is not None:
            raise _wrong("verdict", "does not go with `metric` and `value`")
        if not isinstance(verdict, str) or verdict not in VERDICTS:
            raise _wrong("verdict", f"should be one of {', '.join(VERDICTS)}")
        return Said(decision_id, QUALITY, VERDICTS[verdict], verdict, feedback_id)
    if not (isinstance(metric, str) and _METRIC.fullmatch(metric)):
        raise _wrong("metric", "should be a name of up to 64 letters, digits and . _ -; or give a `verdict`")
    value = fields.get("value")
    if not isinstance(value, (bool, int, float)) or not 0 <= value <= 1:
        raise _wrong("value", "should be a number from 0 to 1, or true or false")
    return Said(decision_id, metric, float(value), None, feedback_id)


class FeedbackBox:
    """put: see Writer.put. heard: told of what is taken, once. clock: seconds, never back. now: seconds since 1970."""

    def __init__(
        self,
        put: Put,
        heard: Heard = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._put = put
        self._heard = heard
        self._clock = clock
        self._now = now
        self._decisions = _Recent()
        self._feedback = _Recent()
        self._counts: dict[str, int] = {}
        self._counted_until = float("-inf")

    def ended(self, receipt: Receipt) -> None:
        """A request has ended, and its row is on its way."""
        self._decisions.add(receipt.decision_id)

    def take(self, principal: Principal, said: Said, most: int | None) -> Taken:
        """Takes what a key says of its tenant's decision. most: of one key in an hour. Raises ApiError 429, 503 when there is no room."""
        known = f"{len(principal.tenant)}:{principal.tenant}{said.id}"
        if said.id is not None and known in self._feedback:
            return Taken(said.id, "duplicate")
        self._room(principal.key, most)
        id_ = said.id or f"fb_{secrets.token_hex(12)}"
        row = (principal.tenant, id_, said.decision_id, said.metric, said.value, said.verdict, principal.key, 1.0, self._now())
        if not self._put("feedback", row):
            message = "Feedback cannot be kept now: the database is away, and too much waits for it."
            raise ApiError(503, "gateway_storage_unavailable", message, headers=retry_after(_FULL_S))
        self._counts[principal.key] = self._counts.get(principal.key, 0) + 1
        if said.id is not None:
            self._feedback.add(known)
        self._heard(said)
        return Taken(id_, "joined" if said.decision_id in self._decisions else "pending")

    def _room(self, key: str, most: int | None) -> None:
        now = self._clock()
        if now >= self._counted_until:
            self._counts.clear()
            self._counted_until = now + _HOUR_S
        if most is not None and self._counts.get(key, 0) >= most:
            message = f"Feedback of key `{key}` counts {most} times an hour, and has done so."
            raise ApiError(429, "rate_limit_exceeded", message, headers=retry_after(self._counted_until - now))


class _Recent:
    """The last things that were added: so many at least, and not more than twice as many."""

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        self._new: set[str] = set()
        self._old: set[str] = set()

    def add(self, thing: str) -> None:
        self._new.add(thing)
        if len(self._new) >= _REMEMBERED:
            self._old, self._new = self._new, set()

    def __contains__(self, thing: str) -> bool:
        return thing in self._new or thing in self._old


def _wrong(param: str, reason: str) -> ApiError:
    return ApiError(400, "caller_invalid_value", f"`{param}` {reason}.", param=param)
