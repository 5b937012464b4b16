"""A gateway in a line, as `systemctl status` shows it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.workers.status import line


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "serving"),
        ({"started": False, "waiting": ["m"]}, "starting"),
        ({"waiting": ["m", "n"]}, "waiting for a backend of m, n"),
        ({"waiting": list("abcdef")}, "waiting for a backend of a, b, c, d, e, ..."),
        ({"reload_failed": True}, "serving; the last reload failed, see the log"),
        ({"waiting": ["m"], "reload_failed": True}, "waiting for a backend of m; the last reload failed, see the log"),
        ({"stopping": True, "running": 3, "waiting": ["m"], "reload_failed": True}, "stopping: 3 requests go on"),
    ],
)
def test_what_is_said(how: dict[str, Any], said: str) -> None:
    whole: dict[str, Any] = {"started": True, "stopping": False, "running": 0, "waiting": [], "reload_failed": False}
    assert line(**(whole | how)) == said
