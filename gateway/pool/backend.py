"""A backend as it runs: where it is, what it serves, how much of our work it has."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.config.schema import Backend as Spec
from gateway.config.schema import Timeouts
from gateway.engines.base import Adapter, ModelInfo
from gateway.engines.registry import adapter
from gateway.pool.breaker import Breaker
from gateway.pool.fingerprint import Fingerprints
from gateway.pool.metrics import Scraped

_SENDABLE: Final = re.compile(r"[!-~]+")
# Whatever the configuration says: framing and what belongs to one hop are the transport's to say, the last two are the relay's.
_NEVER_FORWARDED: Final = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"accept-encoding",
        b"x-request-id",
    )
)


@dataclass(slots=True, eq=False)
class Backend:
    """One engine. `in_flight` counts our own requests to it; `answered` whether it has ever answered; `cards` its /v1/models by name.

    `draining`: the operator lets it run empty. `disabled`: and wants it left alone, by probes too. `scraped`: how busy the engine last said
    it is. `probed_at`: when the last probe ended (time.monotonic), None before the first; `probe_error`: what it found amiss.
    `former`: those whose place it took while calls of theirs ran.
    """

    name: str
    url: str
    adapter: Adapter
    models: Mapping[str, str]
    weight: float
    timeouts: Timeouts
    forward: frozenset[bytes]
    spec: Spec
    authorization: bytes | None = field(repr=False, default=None)
    breaker: Breaker = field(default_factory=lambda: Breaker(time.monotonic))
    draining: bool = False
    disabled: bool = False
    scraped: Scraped | None = None
    in_flight: int = 0
    answered: bool = False
    cards: dict[str, ModelInfo] = field(default_factory=dict)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    probed_at: float | None = None
    probe_error: str | None = None
    former: tuple[Backend, ...] = field(repr=False, default=())

    @property
    def queued(self) -> float:
        """Sequences that wait in the engine, as it last said, halved for each five seconds since; 0 when unknown."""
        return 0.0 if self.scraped is None else self.scraped.queued(time.monotonic())

    @property
    def serves(self) -> bool:
        """Whether it may get calls, as far as the operator is concerned."""
        return self.spec.enabled and not self.draining and not self.disabled

    @property
    def running(self) -> int:
        """Our requests under this name: those that began before its section changed, too."""
        return self.in_flight + sum(each.in_flight for each in self.former)

    def succeed(self, old: Backend) -> None:
        """Takes the place of `old`, which had the same name: what the operator said of that one holds, and what its engine said of itself,
        if it is the same engine."""
        self.draining, self.disabled = old.draining, old.disabled
        if (self.url, self.adapter.name, self.models) == (old.url, old.adapter.name, old.models):
            self.answered, self.cards, self.fingerprints = old.answered, old.cards, old.fingerprints
        self.former = tuple(each for each in (*old.former, old) if each.in_flight)

    @property
    def changed(self) -> Mapping[str, str]:
        """The models for which another one than at first answers: public name -> why."""
        return self.fingerprints.strangers

    @property
    def strangers(self) -> Mapping[str, str]:
        """Those of `changed` that it does not serve for that: all, or, where the operator only wants to be warned, none."""
        return self.fingerprints.strangers if self.spec.on_change == "leave_out" else {}

    @property
    def probe_age_s(self) -> float | None:
        """Seconds since the last probe ended; None before the first."""
        return None if self.probed_at is None else time.monotonic() - self.probed_at

    def accept(self) -> None:
        """The models that answer now are those that should."""
        self.fingerprints.accept()


def backend(name: str, spec: Spec, url: str) -> Backend:
    """A backend from its configuration. Raises ValueError for a key that no header can hold."""
    key = spec.key.get_secret_value() if spec.key is not None else None
    if key is not None and not _SENDABLE.fullmatch(key):
        raise ValueError(f"the key of backend `{name}` cannot be sent in a header")
    forward = frozenset(header.lower().encode() for header in spec.forward_headers) - _NEVER_FORWARDED
    return Backend(
        name=name,
        url=url.rstrip("/").removesuffix("/v1"),
        adapter=adapter(spec.engine_name),
        models=spec.models,
        weight=spec.weight,
        timeouts=spec.timeouts,
        forward=forward if key is None else forward - {b"authorization"},
        spec=spec,
        breaker=Breaker(
            time.monotonic,
            trip_after=spec.breaker.trip_after,
            trip_share=spec.breaker.trip_share,
            window=spec.breaker.window,
            min_calls=spec.breaker.min_calls,
            first_s=spec.breaker.first_s,
            longest_s=spec.breaker.longest_s,
        ),
        authorization=f"Bearer {key}".encode() if key else None,
    )
