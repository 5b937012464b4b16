"""`trilemma serve` as a process: what signals do to it, and what a service manager hears."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.engines.spec import free_port
from tests.support.asking import question
from tests.support.held import HeldBackend
from tests.support.raw import wire
from tests.support.running import config_for
from tests.support.serving import begun, over, serving
from tests.support.systemd import Systemd

# -- the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_once_what_runs_has_ended(tmp_path: Path, number: signal.Signals) -> None:
    """Meanwhile it is alive and not ready, and whoever comes is refused with the reason, and told to come back, and to hang up."""
    async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=600)) as gateway, AsyncExitStack() as stack:
        await gateway.until_status("/ready", 200)
        running, waiting, idle = [await stack.enter_async_context(wire(gateway.url)) for _ in range(3)]
        idle.send(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await idle.answer()).status == 200
        await begun(running, held, 1)
        waiting.post(json.dumps(question()).encode())
        await held.until_begun(2)

        gateway.process.send_signal(number)
        await gateway.until_status("/ready", 503)
        assert await idle.ended()
        assert await gateway.status("/health") == 200
        async with wire(gateway.url) as late:
            late.post(json.dumps(question()).encode())
            refused = await late.answer()
            assert (refused.status, refused.error["code"]) == (503, "gateway_draining")
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["connection"] == "close" and await late.ended()
        assert held.begun == 2

        held.go.set()
        rest = await running.reader.readuntil(b"0\r\n\r\n")
        assert b'"two"' in rest and rest.count(b"[DONE]") == 1 and b"error" not in rest
        answer = await waiting.answer()
        assert json.loads(answer.body)["choices"][0]["message"]["content"] == "two"
        assert await gateway.end() == 0
        assert await gateway.status("/health") == 0
        log = gateway.log.read_text()
        assert "Traceback" not in log and "ERROR" not in log


async def test_a_second_signal_ends_the_grace(tmp_path: Path) -> None:
    """What runs is told why, in its own form; the end is as orderly as the first signal's."""
    async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=3_600)) as gateway, AsyncExitStack() as stack:
        await gateway.until_status("/ready", 200)
        stream, whole = [await stack.enter_async_context(wire(gateway.url)) for _ in range(2)]
        await begun(stream, held, 1)
        whole.post(json.dumps(question()).encode())
        await held.until_begun(2)
        gateway.process.send_signal(signal.SIGTERM)
        await gateway.until_status("/ready", 503)
        gateway.process.send_signal(signal.SIGTERM)

        rest = await stream.reader.readuntil(b"0\r\n\r\n")
        assert rest.count(b"data: ") == rest.count(b'"code":"gateway_draining"') == 1
        refused = await whole.answer()
        assert (refused.status, refused.error["code"]) == (503, "gateway_draining")
        assert await gateway.end() == 0
        log = gateway.log.read_text()
        assert "2 requests are cut off: a second signal" in log
        assert "Traceback" not in log and "ERROR" not in log


async def test_the_grace_is_as_long_as_configured(tmp_path: Path) -> None:
    async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=0.3)) as gateway:
        await gateway.until_status("/ready", 200)
        async with wire(gateway.url) as stream:
            await begun(stream, held, 1)
            gateway.process.send_signal(signal.SIGTERM)
            rest = await stream.reader.readuntil(b"0\r\n\r\n")
            assert rest.count(b'"code":"gateway_draining"') == 1
        assert await gateway.end() == 0
        assert "1 requests are cut off: the grace is over" in gateway.log.read_text()


async def test_with_nothing_to_do_it_ends_at_once(tmp_path: Path) -> None:
    """Also when probes of a load balancer hang on to their connections, and one has never sent anything."""
    async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=3_600)) as gateway:
        await gateway.until_status("/ready", 200)
        async with wire(gateway.url) as silent, wire(gateway.url) as idle:
            idle.send(b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n")
            await idle.answer()
            gateway.process.send_signal(signal.SIGTERM)
            assert await gateway.end() == 0
            assert await silent.ended() and await idle.ended()


async def test_what_cannot_start_says_so_by_its_status(tmp_path: Path) -> None:
    """1, which a service manager may try again; a configuration with problems is 2, and trying again is of no use."""
    nowhere = {"discover": {"kubernetes": {"service": "vllm"}}, "models": {"m": "m"}}
    env = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    async with serving(tmp_path, config_for({"a": nowhere}), env) as gateway:
        assert await gateway.end() == 1
        assert "not in a Kubernetes cluster" in gateway.log.read_text()
    async with serving(tmp_path, config_for({"a": {"url": "http://127.0.0.1:1", "modles": {}}})) as gateway:
        assert await gateway.end() == 2


# -- the service manager


async def test_a_life_under_a_service_manager(tmp_path: Path) -> None:
    """Ready is who listens, for a backend that is down must not keep a service from starting; which is waited for stands in the status."""
    backend_port = free_port()
    systemd = Systemd()
    config = over(f"http://127.0.0.1:{backend_port}", grace_s=600)
    with systemd.socket:
        async with serving(tmp_path, config, systemd.env(WATCHDOG_USEC="500000")) as gateway:
            before = await systemd.until("READY=1")
            assert not any(line.startswith(("RELOADING", "STOPPING")) for line in before)
            assert await gateway.status("/ready") == 503
            assert (await systemd.until("STATUS="))[-1] == "STATUS=waiting for a backend of mock-model"
            for _ in range(3):
                await systemd.until("WATCHDOG=1")

            backend = await asyncio.start_server(_list_of_models, "127.0.0.1", backend_port)
            async with backend:
                assert (await systemd.until("STATUS="))[-1] == "STATUS=serving"
                assert await gateway.status("/ready") == 200

            asked_usec = time.monotonic_ns() // 1_000
            gateway.process.send_signal(signal.SIGHUP)
            await systemd.until("RELOADING=1")
            usec = int((await systemd.until("MONOTONIC_USEC="))[-1].partition("=")[2])
            assert asked_usec <= usec <= time.monotonic_ns() // 1_000
            await systemd.until("READY=1")
            assert (await systemd.until("STATUS="))[-1] == "STATUS=serving"

            good = gateway.file.read_text()
            gateway.file.write_text("version: 2")
            gateway.process.send_signal(signal.SIGHUP)
            await systemd.until("RELOADING=1")
            await systemd.until("READY=1")
            assert (await systemd.until("STATUS="))[-1] == "STATUS=serving; the last reload failed, see the log"
            gateway.file.write_text(good)
            gateway.process.send_signal(signal.SIGHUP)
            await systemd.until("RELOADING=1")
            await systemd.until("READY=1")
            assert (await systemd.until("STATUS="))[-1] == "STATUS=serving"

            gateway.process.send_signal(signal.SIGTERM)
            await systemd.until("STOPPING=1")
            assert await gateway.end() == 0


async def test_a_watchdog_hears_of_a_gateway_that_ends_slowly(tmp_path: Path) -> None:
    systemd = Systemd()
    with systemd.socket:
        env = systemd.env(WATCHDOG_USEC="300000")
        async with HeldBackend() as held, serving(tmp_path, over(held.url, grace_s=600), env) as gateway:
            await gateway.until_status("/ready", 200)
            async with wire(gateway.url) as stream:
                await begun(stream, held, 1)
                gateway.process.send_signal(signal.SIGTERM)
                await systemd.until("STOPPING=1")
                assert (await systemd.until("STATUS="))[-1] == "STATUS=stopping: 1 requests go on"
                for _ in range(3):
                    await systemd.until("WATCHDOG=1")
                held.go.set()
                assert await gateway.end() == 0


async def _list_of_models(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    body = b'{"object":"list","data":[{"id":"mock-model","object":"model"}]}'
    writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    writer.close()
