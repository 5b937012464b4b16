"""Scenarios for tests, from what differs."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.load.scenario import Scenario


def scenario(**parts: Any) -> Scenario:
    """A scenario over one mock; parts replace or add."""
    given: dict[str, Any] = {"name": "test", "about": "", "duration_s": 10, "backends": {"mock": {}}, "load": {"chat": {"constant": 1}}}
    if "target" in parts:
        del given["backends"]
    return msgspec.convert(given | parts, Scenario)
