"""The gateway without its short way for requests."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from gateway.app import App
from gateway.bench import lanes
from gateway.bench.setup import Setup
from gateway.http.lane import Lane
from gateway.http.request_ids import RequestIds


@pytest.mark.parametrize(("lane", "in_front"), [("asgi", Lane), ("route", RequestIds)])
def test_a_lane_is_what_requests_come_to(lane: str, in_front: type[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[App, bool]] = []

    class Server:
        started = True

        def __init__(self, app: App, _settings: Any, _on_exit: Any, *, hot: bool) -> None:
            served.append((app, hot))

        async def serve(self, sockets: list[socket.socket]) -> None:
            assert len(sockets) == 1

    monkeypatch.setattr(lanes, "Server", Server)
    monkeypatch.setattr(lanes, "prepare", lambda: None)  # the tests' own process is left as it is
    config = tmp_path / "gateway.json"
    config.write_bytes(Setup("gateway", 1, tmp_path).file(0))

    assert lanes.main([lane, "--config", str(config), "--state", str(tmp_path)]) == 0

    [(app, hot)] = served
    assert not hot
    assert type(app.in_front) is in_front
