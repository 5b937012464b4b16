"""The supervisor process and the gateway's handle on it, over real processes: nothing is ever left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.engines.packaged import EngineError
from gateway.engines.spec import EngineSpec, EngineStatus, free_port
from gateway.engines.supervisor import Supervisor
from tests.engines.real_processes import alive, chat, eventually, fake, listens, post

COMMAND = (sys.executable, "-P", "-m", "gateway.engines.supervisor", "--grace", "5", "--state")

# A gateway in small, on the gateway's event loop: reads specs, says the ids of supervisor and engines, and lives on.
GATEWAY = """
import asyncio, json, sys
from pathlib import Path
import msgspec, uvloop
from gateway.engines.spec import EngineSpec
from gateway.engines.supervisor import Supervisor

async def main():
    async with Supervisor(Path(sys.argv[1])) as supervisor:
        specs = msgspec.json.decode(sys.argv[2], type=list[EngineSpec])
        await supervisor.apply(specs)
        await supervisor.wait_ready([spec.name for spec in specs], 60)
        print(json.dumps([supervisor.pid, *(status.pid for status in supervisor.status().values())]), flush=True)
        await asyncio.sleep(600)

uvloop.run(main())
"""


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor(tmp_path, grace_s=5) as entered:
        yield entered


def pid_of(supervisor: Supervisor, name: str) -> int:
    pid = supervisor.status()[name].pid
    assert pid is not None
    return pid


async def test_a_real_engine_answers_and_after_its_death_answers_again(supervisor: Supervisor) -> None:
    spec = EngineSpec(name="small", kind="llama-server", port=free_port(), model="smollm2", served_names=("s",), slots=2, embeddings=True)
    await supervisor.apply([spec])
    await supervisor.wait_ready(["small"], 60)
    first = pid_of(supervisor, "small")
    assert await asyncio.to_thread(chat, spec.port, "What is the capital of Japan?") == "The capital of Japan is Tokyo."
    status, answer = await asyncio.to_thread(post, spec.port, "/v1/embeddings", {"input": "a cat"})
    assert (status, len(answer["data"][0]["embedding"])) == (200, 576)
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: supervisor.status()["small"].restarts == 1)
    await supervisor.wait_ready(["small"], 60)
    assert pid_of(supervisor, "small") != first
    assert supervisor.status()["small"].exit_code == -9
    assert await asyncio.to_thread(chat, spec.port, "What is the capital of Japan?") == "The capital of Japan is Tokyo."


async def test_a_wished_set_starts_the_new_stops_the_gone_restarts_the_changed_and_leaves_the_equal(
    supervisor: Supervisor,
) -> None:
    equal, changed, gone, new = fake("equal"), fake("changed"), fake("gone"), fake("new")
    await supervisor.apply([equal, changed, gone])
    await supervisor.wait_ready(["equal", "changed", "gone"], 30)
    before = {name: pid_of(supervisor, name) for name in ("equal", "changed", "gone")}
    await supervisor.apply([new, msgspec.structs.replace(changed, slots=3), equal])
    assert set(supervisor.status()) == {"new", "changed", "equal"}
    assert supervisor.status()["changed"].state == "starting"  # at once: no stale "ready" is seen after a change
    await supervisor.wait_ready(["new", "changed", "equal"], 30)
    assert pid_of(supervisor, "equal") == before["equal"]
    assert pid_of(supervisor, "changed") != before["changed"]
    assert not alive(before["changed"])
    await eventually(lambda: not alive(before["gone"]))
    assert not listens(gone.port)
    assert all(listens(spec.port) for spec in (equal, changed, new))


async def test_leaving_ends_supervisor_and_engines(tmp_path: Path) -> None:
    changes: list[EngineStatus] = []
    async with Supervisor(tmp_path, on_change=changes.append, grace_s=0.5) as supervisor:
        await supervisor.apply([fake("a"), fake("b", "stubborn")])
        await supervisor.wait_ready(["a", "b"], 30)
        pids = [supervisor.pid, pid_of(supervisor, "a"), pid_of(supervisor, "b")]
    assert not any(map(alive, pids))
    assert [change.state for change in changes if change.engine == "a"] == ["starting", "starting", "ready", "stopped"]
    assert [change.pid for change in changes if change.engine == "a"] == [None, pids[1], pids[1], None]


async def test_without_an_engine_there_is_no_process(supervisor: Supervisor) -> None:
    await supervisor.apply([])
    assert supervisor.pid is None
    assert supervisor.status() == {}


async def test_a_killed_supervisor_is_replaced_and_its_engines_with_it(supervisor: Supervisor) -> None:
    specs = [fake("a"), fake("b", "stubborn", "parent")]
    await supervisor.apply(specs)
    await supervisor.wait_ready(["a", "b"], 30)
    old = [supervisor.pid, pid_of(supervisor, "a"), pid_of(supervisor, "b")]
    child = json.loads(await asyncio.to_thread(Path(supervisor.status()["b"].log).read_text))["child"]
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await eventually(lambda: supervisor.status()["a"].state == "exited")
    assert supervisor.status()["a"].detail == "the supervisor ended with exit code -9"
    await supervisor.wait_ready(["a", "b"], 30)
    assert not any(map(alive, [*old, child]))
    assert all(listens(spec.port) for spec in specs)


async def test_waiting_for_what_cannot_work_says_why_and_a_restart_tries_again(supervisor: Supervisor, tmp_path: Path) -> None:
    program = tmp_path / "engine"
    spec = fake("a")
    spec = msgspec.structs.replace(spec, args=(str(program), *spec.args[1:]))
    await supervisor.apply([spec])
    with pytest.raises(EngineError) as told:
        await supervisor.wait_ready(["a"], 30)
    log = tmp_path / "logs" / "a.log"
    assert str(told.value) == f"the engine a is failed: cannot run {program}: No such file or directory (log: {log})"
    program.symlink_to(sys.executable)
    supervisor.restart("a")
    await supervisor.wait_ready(["a"], 30)


async def test_waiting_has_an_end_and_knows_its_engines(supervisor: Supervisor) -> None:
    await supervisor.apply([fake("a", "mute")])
    with pytest.raises(EngineError, match=r"the engine a is starting: .*\(log: "):
        await supervisor.wait_ready(["a"], 0.2)
    with pytest.raises(EngineError, match="not managed: b"):
        await supervisor.wait_ready(["a", "b"], 30)
    with pytest.raises(KeyError):
        supervisor.restart("b")


async def started(state: Path, *specs: EngineSpec) -> tuple[Process, list[int]]:
    """A supervisor process alone, told these specs, and the ids of its engines once they are ready."""
    process = await asyncio.create_subprocess_exec(*COMMAND, str(state), stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    wish = {"engines": [msgspec.to_builtins(spec) for spec in specs], "revision": 7}
    process.stdin.write(json.dumps(wish).encode() + b"\n")
    lines: list[dict[str, Any]] = []
    while sum(line.get("state") == "ready" for line in lines) < len(specs):
        lines.append(json.loads(await asyncio.wait_for(process.stdout.readline(), 60)))
    assert {"applied": 7} in lines
    return process, [line["pid"] for line in lines if line.get("state") == "ready"]


@pytest.mark.parametrize("how", ["the end of stdin", "SIGTERM", "SIGINT", "SIGKILL"])
async def test_a_supervisor_that_ends_takes_its_engines_along(how: str, tmp_path: Path) -> None:
    process, engines = await started(tmp_path, fake("a"), fake("b"))
    if how == "the end of stdin":
        assert process.stdin is not None
        process.stdin.close()
    else:
        process.send_signal(signal.Signals[how])
    assert await asyncio.wait_for(process.wait(), 30) == (-9 if how == "SIGKILL" else 0)
    await eventually(lambda: not any(map(alive, engines)))


async def test_a_gateway_killed_outright_leaves_no_process(tmp_path: Path) -> None:
    real = EngineSpec(name="real", kind="llama-server", port=free_port(), model="smollm2", slots=1)
    wished = msgspec.json.encode([real, fake("fake"), fake("stubborn", "parent")]).decode()
    gateway = await asyncio.create_subprocess_exec(sys.executable, "-c", GATEWAY, str(tmp_path), wished, stdout=PIPE)
    assert gateway.stdout is not None
    pids = json.loads(await asyncio.wait_for(gateway.stdout.readline(), 60))
    assert len(pids) == 4
    assert all(map(alive, pids))
    gateway.kill()
    await gateway.wait()
    await eventually(lambda: not any(map(alive, pids)))
    assert not listens(real.port)
