"""What flows through the life of a request: the call as it came, the answer as it goes, and the receipt that grows between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from gateway.access.keys import Principal
from gateway.access.limits import Permit
from gateway.pool.breaker import Fault
from gateway.serving.admission import Slot
from gateway.serving.choice import Choice
from gateway.wire.errors import ApiError, Header
from gateway.wire.usage import Rates, Usage

Outcome = Literal["ok", "caller_error", "backend_error", "client_closed", "gateway_error"]


class Call(msgspec.Struct, frozen=True):
    """A request's head. Header names are in lower case; `received` is time.perf_counter(). peer: address and port of who called."""

    method: str
    path: str
    query: bytes
    headers: Sequence[Header]
    received: float
    peer: tuple[str, int] | None = None

    def __repr__(self) -> str:
        """Without headers and query: they may hold keys."""
        return f"Call({self.method} {self.path})"


Purpose = Literal["served", "candidate", "judge", "scorer", "shadow", "tokenizer"]
Came = Literal["ok", "caller_error", "backend_error", "cancelled"]


class UpstreamCall(msgspec.Struct):
    """One request to one backend, and what came of it. Times are time.perf_counter().

    model: its public name. first: when the answer was at hand, its first event if it is a stream. outcome: None while it runs; `cancelled`:
    nobody wanted it any more. fault: what the breaker was told. estimated: `usage` was counted here, for the backend never told. rates: of
    the model. others: of our own calls, that ran there when it began. streamed: its answer is a stream.
    """

    backend: str
    model: str
    started: float
    purpose: Purpose = "served"
    first: float | None = None
    ended: float | None = None
    status: int = 0
    outcome: Came | None = None
    fault: Fault | None = None
    usage: Usage | None = None
    estimated: bool = False
    rates: Rates = Rates()
    others: int = 0
    streamed: bool = False


class Examined(msgspec.Struct, frozen=True):
    """What is to be found out of an answer, once it is there. response_format, tools: as they came; empty: there were none. limited: the
    caller bounded the answer's length. judges: who is to be asked about it, with the share of such decisions about
    which that is. most: bytes of an answer that is looked at."""

    response_format: bytes
    tools: bytes
    limited: bool
    judges: Mapping[str, float]
    most: int


class Words(msgspec.Struct):
    """What was said, held only where the operator wants it: the prompt as it came, and the bytes of the answer.

    most: bytes of the answer, which may be one byte longer: that tells that there was more; so may the prompt. kept: of each so many are
    stored; None: nothing is. examined: what the answer is looked at for; None: nobody looks.
    """

    most: int
    prompt: bytes
    answer: bytearray | None = None
    kept: int | None = None
    examined: Examined | None = None

    def hear(self, data: bytes) -> None:
        """More of the answer."""
        if self.answer is None:
            self.answer = bytearray()
        if len(self.answer) <= self.most:
            self.answer += data[: self.most + 1 - len(self.answer)]


class Tried(msgspec.Struct):
    """A candidate of a strategy. outcome: `cancelled` while it runs, and for ever if nobody waited for it. finish: why it ended, as the
    engine says. score: what it was chosen by; None: by nothing. cost: USD."""

    index: int
    outcome: Literal["won", "lost", "failed", "cancelled"] = "cancelled"
    finish: str | None = None
    score: float | None = None
    tokens: int | None = None
    cost: float = 0.0


class Tries(msgspec.Struct, frozen=True):
    """What a strategy tried, and in a word why one of them won; None: none did."""

    candidates: list[Tried]
    why: str | None = None


class Receipt(msgspec.Struct):
    """What is known of a request so far; owned by that request alone.

    call: the request's head. code: of the error that the gateway answered with. plan: which a virtual model's policy drew; explored: it was
    not the one that the policy likes best; choice: what it was drawn from. session: the caller's own, as it came. tags: the
    caller's, and over them its key's. learn: whether policies may learn from it. dry_run: nothing is called, and nothing kept or counted.
    permit: what it has of its caller's limits; None: there are none. tried: a strategy's
    candidates, in the order in which they began; why: it chose as it did; places: see Won.
    """

    request_id: str
    decision_id: str
    received: float
    principal: Principal | None = None
    config_hash: str = ""
    requested_model: str | None = None
    served_model: str | None = None
    backend: str | None = None
    policy: str = "none"
    plan: str | None = None
    strategy: str = "single"
    propensity: float = 1.0
    explored: bool = False
    choice: Choice | None = None
    attempts: int = 0
    calls: list[UpstreamCall] = []
    clipped: list[str] = []
    rates: Rates = Rates()
    usage: Usage | None = None
    status: int = 0
    outcome: Outcome | None = None
    waited: float = 0.0
    overhead: float | None = None
    events: int = 0
    slot: Slot | None = None
    permit: Permit | None = None
    call: Call | None = None
    code: str | None = None
    session: str | None = None
    tags: dict[str, str] | None = None
    words: Words | None = None
    learn: bool = True
    dry_run: bool = False
    tried: list[Tried] = []
    why: str | None = None
    places: Sequence[tuple[int, int]] = ()

    def headers(self, *, stream: bool) -> list[Header]:
        """The headers of every answer, errors too. Notes the overhead, seconds, that they tell of."""
        overhead = self.overhead = time.perf_counter() - self.received - self.waited
        out = [
            (b"x-request-id", self.request_id.encode()),
            (b"x-trilemma-decision-id", self.decision_id.encode()),
            (b"x-trilemma-policy", self.policy.encode()),
            (b"x-trilemma-strategy", self.strategy.encode()),
            (b"x-trilemma-overhead-ms", b"%.2f" % (overhead * 1e3)),
        ]
        if not stream or self.strategy == "single":  # of a strategy's stream neither is known yet
            out.append((b"x-trilemma-model", (self.served_model or "").encode()))
            out.append((b"x-trilemma-attempts", b"%d" % self.attempts))
        if not stream:
            candidates = sum([each.outcome in ("won", "lost") for each in self.tried]) if self.tried else int(self.outcome == "ok")
            out.append((b"x-trilemma-candidates", b"%d" % candidates))
            out.append((b"x-trilemma-cost", b"%.10g" % self.cost))
        if self.clipped:
            out.append((b"x-trilemma-clipped", ",".join(self.clipped).encode()))
        if self.permit is not None:
            out += self.permit.headers()
        return out

    @property
    def cost(self) -> float:
        """USD, as far as usage is known: of a strategy, all its calls."""
        if self.tried:
            return sum([call.rates.cost(call.usage) for call in self.calls if call.usage is not None])
        return self.rates.cost(self.usage) if self.usage is not None else 0.0


class StreamBroken(Exception):
    """The body ended early and its format has no way to say so."""


Push = Callable[[bytes], bool]
"""Sends a piece of an answer. Whether more may be sent at once."""


class Stream(Protocol):
    """A body that comes in pieces. `close` ends everything behind it, on every path, exactly once. takes_comments: it is one of events, and
    between its pieces a comment may stand."""

    takes_comments: bool

    async def next(self, push: Push | None = None) -> bytes:
        """The next bytes to send; empty at the end. push: may be handed bytes before those, while this waits, until it says False, which is
        that it has to wait before it can send more. A failure that can still be told to the client is told in the stream;
        one that cannot raises `StreamBroken`, and the connection must be dropped."""
        ...

    def cut(self, error: ApiError) -> bytes | None:
        """Ends the body early, for a reason of the gateway's own: the last bytes to send, empty when all was said; None: the format cannot
        tell of it, so the connection must be dropped."""
        ...

    def close(self) -> None:
        """Releases what the answer holds."""
        ...


class Answer(msgspec.Struct, frozen=True):
    """What goes to the caller: a body, or a stream."""

    status: int
    headers: list[Header]
    body: bytes = b""
    stream: Stream | None = None
