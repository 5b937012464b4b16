"""A backend as it runs: where it is, what it serves, how much of our work it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.config.schema import Backend as Spec
from gateway.config.schema import Timeouts
from gateway.engines.base import Adapter, ModelInfo
from gateway.engines.registry import adapter

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
    """One engine. `in_flight` counts our own requests to it; `answered` whether it has ever answered; `cards` its /v1/models by name."""

    name: str
    url: str
    adapter: Adapter
    models: Mapping[str, str]
    weight: float
    timeouts: Timeouts
    forward: frozenset[bytes]
    spec: Spec
    authorization: bytes | None = field(repr=False, default=None)
    in_flight: int = 0
    answered: bool = False
    cards: dict[str, ModelInfo] = field(default_factory=dict)

    @property
    def load(self) -> float:
        """Own requests in flight per weight."""
        return self.in_flight / self.weight


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
        authorization=f"Bearer {key}".encode() if key else None,
    )


def least_loaded(backends: tuple[Backend, ...]) -> Backend:
    """The backend with the least of our work, those that have answered before those that have not; first named wins a tie."""
    if len(backends) == 1:
        return backends[0]
    return min(backends, key=lambda b: (not b.answered, b.load))
