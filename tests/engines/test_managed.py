"""One managed engine's life, over real processes."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.engines.managed import Limits, ManagedEngine, healthy, launch, log_path
from gateway.engines.spec import EngineSpec, EngineStatus, free_port
from tests.engines.real_processes import alive, eventually, fake

QUICK = Limits(grace=0.3, first_pause=0.01, longest_pause=0.04, log_check=0.02)


@asynccontextmanager
async def keeping(spec: EngineSpec, state: Path, limits: Limits = QUICK) -> AsyncIterator[list[EngineStatus]]:
    """The engine runs inside the block; gives the list of its statuses, which grows."""
    told: list[EngineStatus] = []
    task = asyncio.create_task(ManagedEngine(spec, state, told.append, limits).run())
    try:
        yield told
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()


def states(told: list[EngineStatus]) -> list[str]:
    return [status.state for status in told]


def said(status: EngineStatus) -> dict[str, Any]:
    """What the fake engine said of itself when it started."""
    found: dict[str, Any] = json.loads(Path(status.log).read_text().splitlines()[0])
    return found


async def test_it_becomes_ready_and_ends_as_asked(tmp_path: Path) -> None:
    spec = fake("a")
    async with keeping(spec, tmp_path) as told:
        await eventually(lambda: states(told)[-1:] == ["ready"])
        pid = told[-1].pid
        assert alive(pid)
        assert await healthy(spec.port)
    assert states(told) == ["starting", "ready", "stopped"]
    assert (told[-1].pid, told[-1].restarts, told[-1].port) == (None, 0, spec.port)
    assert not alive(pid)


@pytest.mark.parametrize("option", ["stubborn", "parent"])
async def test_one_that_ignores_sigterm_is_killed_and_so_is_a_child(option: str, tmp_path: Path) -> None:
    async with keeping(fake("a", option), tmp_path) as told:
        await eventually(lambda: states(told)[-1:] == ["ready"])
        pid, child = told[-1].pid, said(told[-1])["child"]
    assert not alive(pid)
    await eventually(lambda: child is None or not alive(child))


async def test_what_ends_by_itself_is_started_again_and_again(tmp_path: Path) -> None:
    spec = EngineSpec(name="a", kind="command", port=free_port(), args=("sh", "-c", "echo out of memory >&2; exit 3"))
    async with keeping(spec, tmp_path) as told:
        await eventually(lambda: told[-1:] != [] and told[-1].restarts == 3)
    exits = [status for status in told if status.state == "exited"]
    assert [(status.exit_code, status.detail, status.pid) for status in exits[:3]] == [(3, "out of memory", None)] * 3
    assert "ready" not in states(told)


async def test_a_killed_engine_tells_the_signal(tmp_path: Path) -> None:
    spec = EngineSpec(name="a", kind="command", port=free_port(), args=("sh", "-c", "kill -9 $$"))
    async with keeping(spec, tmp_path) as told:
        await eventually(lambda: "exited" in states(told))
    (first, *_) = (status for status in told if status.state == "exited")
    assert (first.exit_code, first.detail) == (-9, "ended by signal 9 (Killed)")


@pytest.mark.parametrize(("script", "code"), [("exit 78", 78), ("exec /no/such/program", 127)])
async def test_what_cannot_work_is_not_tried_again(script: str, code: int, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    spec = EngineSpec(name="a", kind="command", port=free_port(), args=("sh", "-c", f"echo x >> {runs}; {script}"))
    async with keeping(spec, tmp_path) as told:
        await eventually(lambda: states(told)[-1:] == ["failed"])
    assert states(told) == ["starting", "failed", "stopped"]
    assert told[1].exit_code == code
    assert runs.read_text() == "x\n"


async def test_one_that_is_not_ready_in_time_is_started_again(tmp_path: Path) -> None:
    limits = Limits(start={"command": 0.3}, grace=0.3, first_pause=0.01)
    async with keeping(fake("a", "mute"), tmp_path, limits) as told:
        await eventually(lambda: told[-1:] != [] and told[-1].restarts == 1 and told[-1].pid is not None)
        first, second = told[0].pid, told[-1].pid
        assert not alive(first)
        assert alive(second)
    assert (told[1].state, told[1].detail, told[1].exit_code) == ("exited", "not ready within 0.3 s", -15)


async def test_a_port_of_another_program_is_told(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        async with keeping(fake("a", port=port), tmp_path, Limits(port=0.0, first_pause=0.01)) as told:
            await eventually(lambda: "exited" in states(told))
            assert told[0].detail == f"port {port} is taken by another program"
            other.close()
            await eventually(lambda: states(told)[-1] == "ready")


async def test_its_output_is_kept_bounded_and_the_last_run_is_kept_beside(tmp_path: Path) -> None:
    log, older = log_path("a", tmp_path), tmp_path / "logs" / "a.log.1"
    log.parent.mkdir()
    log.write_text("of the last run\n")
    async with keeping(fake("a", "chatty"), tmp_path, Limits(log_check=0.02, log_bytes=20_000)) as told:
        await eventually(lambda: "ready" in states(told))
        assert told[-1].log == str(log)
        await eventually(lambda: older.stat().st_size > 20_000)  # cut once: what was before stands beside
        await eventually(lambda: 0 < log.stat().st_size < 20_000)


async def test_the_gateways_secrets_stay_with_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILEMMA_SECRET", "hidden")
    monkeypatch.setenv("HF_HOME", "/models")
    async with keeping(fake("a"), tmp_path) as told:
        await eventually(lambda: "ready" in states(told))
        seen = said(told[-1])["environment"]
    assert seen["HF_HOME"] == "/models"
    assert not [name for name in seen if name.startswith("TRILEMMA_")]


def test_each_kind_has_its_command_and_environment(tmp_path: Path) -> None:
    inherited = {"PATH": "/bin", "TRILEMMA_SECRET": "hidden"}
    small = EngineSpec(
        name="s", kind="llama-server", port=1, model="m.gguf", served_names=("s", "t"), embeddings=True, args=("--threads", "3")
    )
    command, environment = launch(small, tmp_path, inherited)
    assert command == [
        *(sys.executable, "-P", "-m", "gateway.engines.llama_server", "--model", "m.gguf", "--state", str(tmp_path)),
        *("--port", "1", "--alias", "s", "--slots", "8", "--context", "1024", "--embeddings", "--threads", "3"),
    ]
    assert environment == {"PATH": "/bin", "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    big = EngineSpec(name="b", kind="vllm", port=1, model="/m", python=str(tmp_path / "bin/python"))
    command, environment = launch(big, tmp_path, inherited)
    assert command[:3] == [str(tmp_path / "bin/python"), "-m", "vllm.entrypoints.openai.api_server"]
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "TRILEMMA_SECRET" not in environment
    assert "TORCH_COMPILE_DISABLE" not in environment
    own = EngineSpec(name="c", kind="command", port=1, args=("run", "it"), env={"A": "b"})
    assert launch(own, tmp_path, inherited) == (["run", "it"], {"PATH": "/bin", "A": "b"})


def test_names_that_differ_get_logs_that_differ_inside_the_folder(tmp_path: Path) -> None:
    names = ["a", "a/b", "a:b", "a_b", "a..", "x" * 150, "x" * 151]
    paths = [log_path(name, tmp_path) for name in names]
    assert len({*paths}) == len(names)
    assert {path.parent for path in paths} == {tmp_path / "logs"}
    assert paths[0].name == "a.log"


async def test_health_is_only_an_answer_of_200() -> None:
    reply = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for reply, expected in [
            (b"HTTP/1.1 200 OK\r\n\r\n", True),
            (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
            (b"", False),
            (b"x" * 100_000, False),
        ]:
            assert await healthy(port) is expected, reply[:40]
    assert not await healthy(port)
