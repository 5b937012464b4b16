"""Retries have one owner, and each request one budget of attempts.

A failed attempt is tried again on a replica that has not failed this request yet, at once; then on the models that may stand in. Only
when all have failed, and one asked for patience (Retry-After) that fits into the deadline and into `longest_wait_s`, is there a wait, with
jitter. Nothing is tried again once a byte of the answer has gone to the caller, and nothing that the caller got wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gateway.serving.begun import Begun
from gateway.wire.errors import ApiError


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure: what to tell the caller if nothing better comes. elsewhere: whether another replica or model may do better.

    retry_after_s: how long the backend asked to be left alone.
    """

    told: ApiError | Begun
    elsewhere: bool
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """attempts: at most so many per request, the first included. longest_wait_s: the longest Retry-After that is waited for."""

    attempts: int = 3
    longest_wait_s: float = 5.0

    def wait_s(self, asked_s: float | None, left_s: float, random: Random) -> float | None:
        """How long to wait when every replica has failed: a little longer than asked; None: do not. left_s: until the deadline."""
        if asked_s is None or asked_s > self.longest_wait_s:
            return None
        wait = asked_s + random.uniform(0.0, 0.1 + 0.1 * asked_s)
        return wait if wait < left_s else None
