"""Backends without a configuration file."""

from __future__ import annotations

from gateway.config.schema import Backend as Spec
from gateway.pool.backend import Backend, backend


def made(name: str, url: str | None = None, **more: object) -> Backend:
    """A backend that serves `m`, at http://NAME unless a URL is given; more: further keys of its configuration."""
    url = url or f"http://{name}"
    return backend(name, Spec.model_validate({"url": url, "models": {"m": "m"}} | more), url)
