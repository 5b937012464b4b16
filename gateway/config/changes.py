"""What of a new configuration does not take effect while the gateway runs."""

from __future__ import annotations

from typing import Final

from gateway.config.schema import Config

AT_ONCE: Final = ("max_body_bytes", "max_n", "heartbeat_s")
"""Keys of `server` that a reload takes up."""


def at_next_start(before: Config, after: Config) -> list[str]:
    """Sentences about changes that are not taken up now."""
    found = []
    if after.server != before.server:
        *keys, last = (f"`{key}`" for key in AT_ONCE)
        found.append(f"changes under `server`, but for {', '.join(keys)} and {last}, take effect at the next start")
    if after.storage != before.storage:
        found.append("changes under `storage` take effect at the next start")
    return found


def late(reason: str) -> str:
    """What is said of a configuration that is in use, but for its managed engines."""
    return f"the configuration is in use, but its engines are late: {reason}"
