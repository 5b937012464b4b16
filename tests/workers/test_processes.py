"""The lives of real workers and of their parent: one that dies, the end of all, signals, engines, a service manager."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from gateway.engines.spec import free_port
from gateway.mock import MockBackend
from tests.support.asking import CHAT, question
from tests.support.held import HeldBackend
from tests.support.processes import alive, family
from tests.support.raw import Wire, wire
from tests.support.running import KEY, config_for
from tests.support.scraping import scrape
from tests.support.serving import begun, over, serving
from tests.support.systemd import Systemd
from tests.support.waiting import until
from tests.workers.looking import clients, until_so, until_workers, wires, workers

BODY = json.dumps(question()).encode()
FAKE = Path(__file__).parents[1] / "engines" / "fake_engine.py"


async def rest_of(stream: Wire) -> bytes:
    """All that still comes of it."""
    return await stream.reader.readuntil(b"0\r\n\r\n")


async def streams(connections: dict[int, list[Wire]] | Any, held: HeldBackend) -> None:
    """One with each worker, whose first events have come."""
    for count, mine in enumerate(connections.values(), held.begun + 1):
        await begun(mine[0], held, count)


# -- one that dies


async def test_the_others_serve_on_when_one_is_killed_and_another_takes_its_place(tmp_path: Path) -> None:
    """Nobody whom another serves notices. The new one knows what an operator said and what was counted, and has those who waited."""
    async with HeldBackend() as held, MockBackend(["mock-model"]) as mock:
        config = over(held.url, workers=2)
        config["backends"]["b"] = {"url": mock.url, "models": {"quick": "mock-model"}}
        config["backends"]["out"] = {"url": mock.url, "models": {"quick": "mock-model"}}
        async with serving(tmp_path, config) as gateway:
            pids = await until_workers(gateway)
            await gateway.until_status("/ready", 200)
            async with wires(gateway) as connections, clients(gateway) as asking:
                assert (await asking[1].patch("/admin/backends/out", json={"state": "disabled"})).status_code == 200
                for number in (1, 2):
                    assert (await asking[number].post(CHAT, json=question(model="quick"))).status_code == 200
                await until_so(lambda: _counted(asking[2], 2))
                await streams(connections, held)

                os.kill(pids[1], signal.SIGKILL)
                assert await connections[1][0].ended()
                for _ in range(20):
                    assert (await asking[2].post(CHAT, json=question(model="quick"))).status_code == 200
                async with AsyncExitStack() as stack:  # half of them come to the one that is not there yet
                    callers = [await stack.enter_async_context(wire(gateway.url)) for _ in range(20)]
                    for caller in callers:
                        caller.post(json.dumps(question(model="quick")).encode())
                    assert {answer.status for answer in await asyncio.gather(*(caller.answer() for caller in callers))} == {200}

                fresh = await until_workers(gateway, but=frozenset({pids[1]}))
                assert fresh[2] == pids[2]
                held.go.set()
                rest = await rest_of(connections[2][0])
                assert b'"two"' in rest and rest.count(b"[DONE]") == 1 and b"error" not in rest

            async with clients(gateway) as asking:
                for client in asking.values():
                    assert (await client.get("/admin/backends/out")).json()["state"] == "disabled"
                    await until_so(lambda client=client: _counted(client, 42))
            log = gateway.log.read_text()
            assert f"worker 1 (process {pids[1]}) has ended: SIGKILL" in log
            assert "Traceback" not in log


async def _counted(client: httpx.AsyncClient, count: int) -> bool:
    return (await scrape(client)).of("trilemma_upstream_requests_total", backend="b", outcome="ok") == count


# -- the end


async def test_a_signal_ends_all_once_what_runs_has_ended(tmp_path: Path) -> None:
    """Whoever comes meanwhile is told why not, though one worker may have nothing left to do. Signals that reach the workers, too, as those
    of a terminal or of a service manager do, change nothing."""
    async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=600, workers=2)) as gateway:
        pids = await until_workers(gateway)
        await gateway.until_status("/ready", 200)
        members = family(gateway.process.pid)
        async with wires(gateway) as connections:
            stream, idle = connections[1][0], connections[2][0]
            await begun(stream, held, 1)
            gateway.process.send_signal(signal.SIGTERM)
            for pid in pids.values():
                os.kill(pid, signal.SIGTERM)
            await until(lambda: list(workers(gateway)) == [1], "the end of the one that has nothing to do")
            assert await idle.ended()
            for _ in range(5):
                async with wire(gateway.url) as late:
                    late.post(BODY)
                    refused = await late.answer()
                    assert (refused.status, refused.error["code"]) == (503, "gateway_draining")
            held.go.set()
            rest = await rest_of(stream)
            assert b'"two"' in rest and rest.count(b"[DONE]") == 1 and b"error" not in rest
        assert await gateway.end() == 0
        assert await gateway.status("/health") == 0
        assert alive(members) == []
        log = gateway.log.read_text()
        assert "Traceback" not in log and "ERROR" not in log
        assert not list((tmp_path / "state").iterdir()), "what the workers shared is gone"


async def test_a_second_signal_ends_the_grace_of_all(tmp_path: Path) -> None:
    async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=3_600), os.environ, "--workers", "2") as gateway:
        await until_workers(gateway)
        await gateway.until_status("/ready", 200)
        async with wires(gateway) as connections:
            await streams(connections, held)
            gateway.process.send_signal(signal.SIGINT)
            await gateway.until_status("/ready", 503)
            gateway.process.send_signal(signal.SIGINT)
            for mine in connections.values():
                rest = await rest_of(mine[0])
                assert rest.count(b"data: ") == rest.count(b'"code":"gateway_draining"') == 1
        assert await gateway.end() == 0
        assert gateway.log.read_text().count("1 requests are cut off: a second signal") == 2


async def test_nothing_outlives_a_parent_that_is_killed_and_an_engine_runs_once(tmp_path: Path) -> None:
    """The engine is the parent's: all workers see the same one. Nobody but its parent can start or end it."""
    tool = tmp_path / "python"  # what is to run the engine: it runs a stand-in at the engine's port
    tool.write_text(f'#!/bin/sh\nwhile [ "$1" != --port ]; do shift; done\nexec "{sys.executable}" "{FAKE}" "$2"\n')
    tool.chmod(0o755)
    own = {"launch": "llama-server", "model": "smollm2", "python": str(tool), "models": {"own": "own"}}
    async with serving(tmp_path, config_for({"own": own}, server={"workers": 2})) as gateway:
        await until_workers(gateway)
        members = family(gateway.process.pid)
        async with clients(gateway) as asking:
            for client in asking.values():
                await until_so(lambda client=client: _is_ready(client))
            managed = [(await client.get("/admin/backends/own")).json()["managed"] for client in asking.values()]
            assert managed[0] == managed[1]
            running = [
                process for process in family(gateway.process.pid) if str(FAKE) in process.command and "guard" not in process.command
            ]
            assert [process.pid for process in running] == [managed[0]["pid"]]
            assert f" {managed[0]['port']}" in running[0].command
        members |= family(gateway.process.pid)
        gateway.process.kill()
        await gateway.end()
        await until(lambda: alive(members) == [], "the end of all", 20)


async def _is_ready(client: httpx.AsyncClient) -> bool:
    managed = (await client.get("/admin/backends/own")).json()["managed"]
    return managed is not None and managed["state"] == "ready"


# -- what cannot start


async def test_what_cannot_start_says_so_by_its_status(tmp_path: Path) -> None:
    nowhere = {"discover": {"kubernetes": {"service": "vllm"}}, "models": {"m": "m"}}
    env = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    async with serving(tmp_path, config_for({"a": nowhere}, server={"workers": 2}), env) as gateway:
        assert await gateway.end() == 1
        assert "not in a Kubernetes cluster" in gateway.log.read_text()
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    async with taken:
        file = tmp_path / "trilemma.yaml"
        port = taken.sockets[0].getsockname()[1]
        file.write_text(json.dumps(config_for({"a": {"url": "http://127.0.0.1:1", "models": {"m": "m"}}}, server={"port": port})))
        command = (Path(sys.executable).with_name("trilemma"), "serve", "--config", file, "--workers", "2", "--state", tmp_path / "state")
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, err = await process.communicate()
        assert process.returncode == 1
        assert f"cannot listen on 127.0.0.1:{port}" in err.decode()


# -- a service manager, signals for a reload


async def test_a_life_under_a_service_manager(tmp_path: Path) -> None:
    """Ready is when all listen; one worker that stands still is killed, and the gateway goes on."""
    systemd = Systemd()
    config = over(f"http://127.0.0.1:{free_port()}", workers=2)
    with systemd.socket:
        async with serving(tmp_path, config, systemd.env(WATCHDOG_USEC="2000000")) as gateway:
            await systemd.until("READY=1")
            assert await gateway.status("/health") == 200
            assert len(workers(gateway)) == 2
            assert (await systemd.until("STATUS=waiting"))[-1] == "STATUS=waiting for a backend of mock-model"

            good = gateway.file.read_text()
            gateway.file.write_text("version: 2")
            gateway.process.send_signal(signal.SIGHUP)
            await systemd.until("RELOADING=1")
            await systemd.until("READY=1")
            assert (await systemd.until("STATUS="))[-1].endswith("; the last reload failed, see the log")

            async with MockBackend(["mock-model"]) as mock:
                old = json.loads(good)
                fresh = {**old, "backends": {"a": {**old["backends"]["a"], "url": mock.url}}}
                gateway.file.write_text(json.dumps(fresh))
                gateway.process.send_signal(signal.SIGHUP)
                await systemd.until("RELOADING=1")
                await systemd.until("READY=1")
                assert (await systemd.until("STATUS=serving"))[-1] == "STATUS=serving"
                async with clients(gateway, KEY) as asking:
                    for client in asking.values():
                        assert (await client.post(CHAT, json=question())).status_code == 200

                pids = workers(gateway)
                os.kill(pids[2], signal.SIGSTOP)
                fresh_pids = await until_workers(gateway, but=frozenset({pids[2]}))
                assert fresh_pids[1] == pids[1]
                assert "worker 2" in gateway.log.read_text() and "stands still, and is killed" in gateway.log.read_text()

                gateway.process.send_signal(signal.SIGTERM)
                await systemd.until("STOPPING=1")
                assert await gateway.end() == 0


async def test_a_file_that_changes_is_taken_up_by_all_and_limits_hold_without_a_database(tmp_path: Path) -> None:
    async with HeldBackend() as held:
        config = over(held.url, workers=2, watch=True)
        config["keys"][0]["limits"] = {"concurrency": 1}
        async with serving(tmp_path, config) as gateway:
            await until_workers(gateway)
            await gateway.until_status("/ready", 200)
            async with wires(gateway, each=5) as connections, clients(gateway) as asking:
                answers = []
                for connection in [connection for mine in connections.values() for connection in mine]:
                    connection.post(BODY)
                    answers.append(asyncio.create_task(connection.answer()))
                await until(lambda: sum(answer.done() for answer in answers) == 9, "all but one are refused")
                assert {answer.result().status for answer in answers if answer.done()} == {429}
                assert held.begun == 1
                held.go.set()
                await asyncio.gather(*answers)

                text = gateway.file.read_text()
                gateway.file.write_text(text.replace('"models": {"mock-model"', '"models": {"more": "mock-model", "mock-model"'))
                assert gateway.file.read_text() != text
                for client in asking.values():
                    await until_so(lambda client=client: _lists(client, "more"))


async def _lists(client: httpx.AsyncClient, model: str) -> bool:
    return model in [card["id"] for card in (await client.get("/v1/models")).json()["data"]]
