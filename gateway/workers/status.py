"""How a gateway is, in a line for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Models in the line.
_NAMED: Final = 5


def line(*, started: bool, stopping: bool, running: int, waiting: Sequence[str], reload_failed: bool) -> str:
    """running: requests. waiting: models none of whose backends has answered."""
    if not started:
        return "starting"
    if stopping:
        return f"stopping: {running} requests go on"
    names = ", ".join(waiting[:_NAMED]) + (", ..." if len(waiting) > _NAMED else "")
    text = f"waiting for a backend of {names}" if waiting else "serving"
    return f"{text}; the last reload failed, see the log" if reload_failed else text
