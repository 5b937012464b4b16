"""A gateway that ours is compared with: where it comes from, how it is started, how much work it can be given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from gateway.bench.blocks import STREAM_EVENTS
from gateway.bench.servers import PLAIN, Ask
from gateway.bench.setup import PACED_MODEL

PORT_FILE: Final = "port"
"""Where a peer that takes no port leaves the one that it found, in its folder."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer is started. folder: its own, empty; programs: those of its environment; backend: the mock's port."""

    folder: Path
    programs: Path
    port: int
    backend: int

    @property
    def backend_url(self) -> str:
        """The mock, without a path."""
        return f"http://127.0.0.1:{self.backend}"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a peer is started: words, no shell; files that it reads, by name, in its folder; more environment variables."""

    command: Sequence[str]
    files: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    names_its_port: bool = False  # in PORT_FILE


@dataclass(frozen=True, slots=True)
class Work:
    """Requests of a block: at 32 connections, at one, and paced streams; nginx gets the same streams, and as many connections."""

    requests: int = 6_000
    single: int = 1_000
    streams: int = 64
    connections: int = 32
    stream_connections: int = 64

    def shrunk(self, by: int) -> Work:
        """So many times less of each, for a smoke run; streams on no more connections than there are streams."""
        streams = -(-self.streams // by)
        return Work(
            max(1, self.requests // by),
            max(1, self.single // by),
            streams,
            min(self.connections, max(1, self.requests // by)),
            min(self.stream_connections, streams),
        )


USUAL: Final = Work()


@dataclass(frozen=True, slots=True)
class Peer:
    """One gateway.

    steps: what its environment is made of: the arguments of `pip install`, one installation after the other. ask, paced_model: how it
    wants to be asked. events: of each stream, as it passes them on; without_streams: why it is given none. remark: what else there is to
    know.
    """

    name: str
    title: str
    version: str
    steps: Sequence[Sequence[str]]
    launch: Callable[[Place], Launch]
    remark: str
    ask: Ask = PLAIN
    paced_model: str = PACED_MODEL
    events: int = STREAM_EVENTS
    work: Work = USUAL
    without_streams: str = ""
