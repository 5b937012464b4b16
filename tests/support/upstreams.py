"""Backends without sockets, for a clock that a test moves: a transport whose every send does as a script says, and a state over it.

engines = Engines({"a": [Does(500), Does()]})
state = made_state({"a": "A", "b": "B"}, models={"A": {"fallbacks": ["B"]}})
answer = await relay(way(engines), real(state, "A"), errand("A"), receipt())
"""

# ruff: noqa: ARG002 - a transport is told more than a script needs

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from gateway.access.keys import Principal
from gateway.config.schema import Config
from gateway.pool.breaker import Breaker, Ticket
from gateway.pool.transport import Broken, ConnectFailed, Tap
from gateway.serving.call import Call, Receipt
from gateway.serving.errand import Errand
from gateway.serving.patience import Patience
from gateway.serving.relay import Way
from gateway.serving.state import RealModel, State, build
from gateway.wire.errors import Header
from gateway.wire.request import read

Fails = Literal["connect", "reset", "untouched", "stall"]
OK = b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
EVENTS = (b'data: {"choices":[{"index":0,"delta":{"content":"w"}}]}\n\n', b"data: [DONE]\n\n")


@dataclass(frozen=True)
class Does:
    """What one send does, `after_s` seconds later: fail, or answer with a status and its body, each piece of which takes `each_s`.

    `untouched`: a kept connection is found closed; a fresh one does as the next in the script. `stall`: nothing, for ever.
    """

    status: int = 200
    after_s: float = 0.0
    fails: Fails | None = None
    retry_after_s: float | None = None
    pieces: tuple[bytes, ...] = (OK,)
    each_s: float = 0.0
    streams: bool = False


@dataclass
class Sent:
    """A send: to whom, when it began and (loop times, seconds) when its head or failure came, and what it did."""

    backend: str
    at: float
    does: Does
    fresh: bool
    ended: float | None = None


@dataclass
class Reply:
    """An answer as it comes (transport.Upstream)."""

    engines: Engines
    sent: Sent
    status: int
    headers: list[Header]
    pieces: list[bytes]
    open: bool = True

    def whole(self) -> bytes | None:
        """See Upstream."""
        return None

    async def read_some(self, tap: Tap | None = None) -> bytes:
        """See Upstream."""
        assert self.open, "read after its end"
        if not self.pieces:
            return b""
        await asyncio.sleep(self.sent.does.each_s)
        return self.pieces.pop(0)

    def release(self) -> None:
        """See Upstream."""
        self.open = False

    def close(self) -> None:
        """See Upstream."""
        if self.open:
            self.engines.aborted.append(self.sent.backend)
        self.open = False


@dataclass
class Engines:
    """A transport. scripts: by backend, what its sends do, one after another; the last goes on for ever. Without: all is well.

    aborted: whose answers, or waits for one, were given up.
    """

    scripts: Mapping[str, Sequence[Does]] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    async def send(self, method: str, url: str, headers: Sequence[Header], body: bytes, connect_s: float, *, fresh: bool = False) -> Reply:
        """See Transport."""
        name = url.split("/")[2]
        script = self.scripts.get(name) or (Does(),)
        does = script[min(len(self.to(name)), len(script) - 1)]
        if fresh and does.fails == "untouched":
            does = Does(fails="reset")
        sent = Sent(name, asyncio.get_running_loop().time(), does, fresh)
        self.sent.append(sent)
        try:
            await (asyncio.get_running_loop().create_future() if does.fails == "stall" else asyncio.sleep(does.after_s))
        except asyncio.CancelledError:
            self.aborted.append(name)
            raise
        finally:
            sent.ended = asyncio.get_running_loop().time()
        if does.fails == "connect":
            raise ConnectFailed("ConnectionRefusedError")
        if does.fails is not None:
            raise Broken("the backend reset the connection", untouched=does.fails == "untouched")
        kind = b"text/event-stream" if does.streams and does.status == 200 else b"application/json"
        found: list[Header] = [(b"content-type", kind)]
        if does.retry_after_s is not None:
            found.append((b"retry-after-ms", b"%d" % round(does.retry_after_s * 1_000)))
        self.replies.append(Reply(self, sent, does.status, found, list(does.pieces)))
        return self.replies[-1]

    def to(self, *names: str) -> list[Sent]:
        """The sends to these."""
        return [sent for sent in self.sent if sent.backend in names]

    async def close(self) -> None:
        """See Transport."""


class CountingBreaker(Breaker):
    """Counts the verdicts."""

    __slots__ = ("faults", "successes")

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self.successes = 0
        self.faults: list[str] = []

    def succeeded(self, ticket: Ticket) -> None:
        """See Breaker."""
        self.successes += 1
        super().succeeded(ticket)

    def faulted(self, ticket: Ticket, fault: Any, retry_after_s: float | None = None) -> None:
        """See Breaker."""
        self.faults.append(fault)
        super().faulted(ticket, fault, retry_after_s)


def made_state(replicas: Mapping[str, str], backend: Mapping[str, Any] | None = None, **sections: Any) -> State:
    """replicas: name -> the model that it serves. All have answered before, and breakers go by the loop's clock."""
    backends = {name: {"url": f"http://{name}", "models": {model: model}, **(backend or {})} for name, model in replicas.items()}
    config = Config.model_validate({"version": 1, "backends": backends, **sections})
    state = build(config, "hash", lambda name: name)
    for each in state.backends.values():
        each.answered = True
        each.breaker = CountingBreaker()
    return state


def real(state: State, name: str) -> RealModel:
    """The model of that name."""
    found = state.names[name]
    assert isinstance(found, RealModel)
    return found


def breaker(state: State, name: str) -> CountingBreaker:
    """That backend's."""
    found = state.backends[name].breaker
    assert isinstance(found, CountingBreaker)
    return found


def errand(model: str, *, stream: bool = False, openai: bool = True, may_stand_in: bool = True) -> Errand:
    """A chat for that model."""
    body = b'{"model":"%s","messages":[{"role":"user","content":"hi"}]%s}' % (model.encode(), b',"stream":true' if stream else b"")
    call = Call("POST", "/v1/chat/completions", b"", [], 0.0)
    return Errand(
        call=call, body=body, fields=read(body, 128), form=None, ask_usage=False, openai=openai, may_stand_in=may_stand_in, idle_s=None
    )


def receipt() -> Receipt:
    """A new one, of an admitted caller."""
    return Receipt("r", "d", 0.0, Principal("test", "tenant", frozenset(("inference",)), None))


def way(engines: Engines, deadline: float | None = None, settled: list[Receipt] | None = None) -> Way:
    """deadline: loop time. settled: where the receipts of streams go."""
    ends = settled if settled is not None else []
    return Way(engines, Patience() if deadline is None else Patience(deadline), ends.append, Random(0))
