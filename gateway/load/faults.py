"""What can go wrong with a backend, and when. Each kind is one struct; `do` in a scenario names it."""

from __future__ import annotations

import msgspec

from gateway.mock.behaviour import Behaviour

_HTML = "<!DOCTYPE html><html><head><title>Sorry</title></head><body><h1>The service is being updated</h1></body></html>"


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="do"):
    """Something that happens to a backend (or to each of a group) `at` seconds after the load began."""

    at: float
    backend: str

    def __post_init__(self) -> None:
        if self.at < 0:
            raise ValueError("`at` is seconds from the start of the load: not below 0")


class Kill(Fault, frozen=True, tag="kill"):
    """SIGKILL: every connection is reset, then nobody listens."""


class Restart(Fault, frozen=True, tag="restart"):
    """A killed backend runs again, at its old address."""


class Drain(Fault, frozen=True, kw_only=True, tag="drain"):
    """The gateway is told to send it no more calls; over when those it has are answered, if that takes no longer than `within_s`."""

    within_s: float = 30.0


class Undrain(Fault, frozen=True, tag="undrain"):
    """The gateway is told to send it calls again."""


class Lasting(Fault, frozen=True, kw_only=True):
    """A fault that ends after `for_s` seconds."""

    for_s: float


class Freeze(Lasting, frozen=True, tag="freeze"):
    """SIGSTOP: the kernel still accepts connections, nothing is ever answered, health probes neither."""


class Scripted(Lasting, frozen=True):
    """A fault that the mock plays; probes (GET) are still answered."""

    def script(self) -> Behaviour:
        """How requests are answered while it lasts."""
        raise NotImplementedError


class Errors(Scripted, frozen=True, kw_only=True, tag="errors"):
    """Every request is answered with an error."""

    status: int = 500

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, status=self.status)


class Flap(Errors, frozen=True, kw_only=True, tag="flap"):
    """Errors and health in turn: half of each `period_s` is bad."""

    period_s: float = 2.0


class NeverAnswer(Scripted, frozen=True, tag="never_answer"):
    """Requests are accepted and never answered."""

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, never_answer=True)


class Stall(Scripted, frozen=True, kw_only=True, tag="stall"):
    """Streams fall silent after some events, for ever; with `comments_s` a comment is sent that often."""

    after_events: int = 3
    comments_s: float | None = None

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, stall_after_events=self.after_events, stall_comments_s=self.comments_s)


class Reset(Scripted, frozen=True, kw_only=True, tag="reset"):
    """The connection is reset after some events of a stream (0: after the head, -1: before it; a whole answer only then)."""

    after_events: int = 3

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, reset_after_events=self.after_events)


class Html(Scripted, frozen=True, kw_only=True, tag="html"):
    """A web page instead of an answer."""

    status: int = 200

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, status=self.status, body=_HTML, headers={"content-type": "text/html"})


class RateLimit(Scripted, frozen=True, kw_only=True, tag="rate_limit"):
    """429, with how long to wait."""

    retry_after_s: int = 1

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, status=429, headers={"retry-after": str(self.retry_after_s)})


class SlowFirstToken(Scripted, frozen=True, kw_only=True, tag="slow_first_token"):
    """The first token takes this long."""

    delay_s: float

    def script(self) -> Behaviour:
        """See Scripted."""
        return Behaviour(times=0, first_token_delay_s=self.delay_s)


class Flood(Scripted, frozen=True, kw_only=True, tag="flood"):
    """Streams of huge events, as fast as the reader takes them."""

    event_bytes: int = 1_000_000
    events: int = 8

    def script(self) -> Behaviour:
        """See Scripted."""
        event = (
            '{"id":"flood","object":"chat.completion.chunk","created":0,"model":"mock","choices":[{"index":0,"delta":{"content":"%s"}}]}'
        )
        return Behaviour(times=0, tokens_per_second=0.0, events=(event % ("x" * self.event_bytes),) * self.events)


class Answer(Scripted, frozen=True, kw_only=True, tag="answer"):
    """Anything else that the mock can do (gateway/mock/behaviour.py)."""

    behaviour: Behaviour

    def script(self) -> Behaviour:
        """See Scripted."""
        return msgspec.structs.replace(self.behaviour, times=0)


AnyFault = (
    Kill
    | Restart
    | Drain
    | Undrain
    | Freeze
    | Errors
    | Flap
    | NeverAnswer
    | Stall
    | Reset
    | Html
    | RateLimit
    | SlowFirstToken
    | Flood
    | Answer
)
