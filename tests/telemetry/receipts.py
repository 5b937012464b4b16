"""Receipts by hand: of requests to a small configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.access.keys import Principal
from gateway.config.load import parse
from gateway.pool.discovery.endpoint import Endpoint
from gateway.serving.call import Call, Receipt, UpstreamCall
from gateway.serving.state import State, build
from gateway.wire.errors import Header

CHAT = "/v1/chat/completions"
TEXT = """
version: 1
backends:
  a: {url: "http://a", models: {m: m}}
  b: {url: "http://b", models: {m: m, n: n}}
models:
  m: {aliases: [alias], price: {input: 1, cached_input: 0.5, output: 2}, fallbacks: [n]}
  n: {price: {input: 10, output: 20}}
virtual_models:
  auto: {policy: fixed, plans: {small: {model: m}, large: {model: n}}}
"""


def state(text: str = TEXT, before: State | None = None, replicas: Sequence[Endpoint] = ()) -> State:
    """The state of a configuration; replicas: of each backend that is discovered."""
    loaded = parse(text, {})
    return build(loaded.config, loaded.hash, lambda _: "", before, lambda _: replicas)


def upstream(backend: str = "a", model: str = "m", **more: Any) -> UpstreamCall:
    """A call that began at 0.1 s, was answered at 0.3 s and ended at 0.5 s; fields replace or add."""
    call = UpstreamCall(backend, model, 0.1, first=0.3, ended=0.5, status=200, outcome="ok")
    return msgspec.structs.replace(call, **more)


def receipt(*calls: UpstreamCall, headers: tuple[Header, ...] = (), path: str = CHAT, **more: Any) -> Receipt:
    """A chat with `m` that came at 0 s and went well; fields replace or add."""
    served = calls[-1] if calls else None
    fields: dict[str, Any] = {
        "requested_model": "m",
        "served_model": None if served is None else served.model,
        "backend": None if served is None else served.backend,
        "calls": list(calls),
        "usage": None if served is None else served.usage,
        "status": 200,
        "outcome": "ok",
        "attempts": len(calls),
        "call": Call("POST", path, b"", list(headers), 0.0),
    }
    return Receipt("req-1", "0190-decision", 0.0, Principal("web", "shop", frozenset(), None), "hash", **(fields | more))
