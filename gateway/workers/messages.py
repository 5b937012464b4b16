"""What a parent and its workers tell each other (channel.py), by name.

worker to parent    start       -> Start        its first question
                    listening                   it accepts connections
                    status      Status          once a second
                    closing     -> None         it is about to accept no more
                    reload      -> problems     the configuration file is to be read again, by all
                    change      Change -> unheard
                    running     -> Running      of all the others
                    claim       Claim -> Kept | None
parent to worker    try         Given -> problems
                    take        Given           what was tried is in use from now on
                    note        Note
                    engines     name -> EngineStatus
                    change      Change
                    running     -> calls by backend
                    states      -> states of backends by name
                    kept        Claim -> Kept | None
                    now                         the grace is over
"""

from __future__ import annotations

import msgspec

from gateway.engines.spec import EngineStatus


class Given(msgspec.Struct, frozen=True):
    """A configuration as it is handed to a worker. config: JSON, secrets and all. hash, source, text: see Loaded."""

    config: str
    hash: str
    source: str
    text: str


class Start(msgspec.Struct, frozen=True):
    """All that a worker has to know. folder: what the workers share. run: this start of the gateway. states: of backends that an operator
    took out of use."""

    given: Given
    state: str
    folder: str
    run: str
    log_level: str | None
    states: dict[str, str]
    engines: dict[str, EngineStatus]


class Status(msgspec.Struct, frozen=True):
    """How a worker is. waiting: models none of whose backends has answered it. running: requests that have not ended."""

    waiting: list[str]
    running: int


class Change(msgspec.Struct, frozen=True):
    """What an operator says of a backend. state: serving, draining, disabled; None: as it is. accept: whatever models the engine has now
    are those that it should have."""

    backend: str
    state: str | None
    accept: bool


class Running(msgspec.Struct, frozen=True):
    """Calls that run, by backend. unheard: workers whose calls are not among them, for they did not answer; 0 is their parent."""

    calls: dict[str, int]
    unheard: list[int]


class Note(msgspec.Struct, frozen=True):
    """What is wrong with a reload. counts: whether this worker counts it as failed; one does it for all."""

    problems: list[str]
    counts: bool


class Claim(msgspec.Struct, frozen=True):
    """A request with an idempotency key. digest: of the request, which has to be the same each time."""

    caller: str
    key: bytes
    digest: bytes


class Kept(msgspec.Struct, frozen=True):
    """What became of such a request in another worker. conflict: that was another request, and there is no answer."""

    status: int = 0
    headers: list[tuple[bytes, bytes]] = []
    body: bytes = b""
    conflict: bool = False
