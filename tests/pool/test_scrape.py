"""How busy engines say they are reaches the choice of replica."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gateway.mock import Behaviour, MockBackend
from gateway.pool.breaker import Breaker
from tests.support.running import config_for, running
from tests.support.waiting import until


async def test_replicas_are_asked_and_a_lone_engine_is_not(tmp_path: Path) -> None:
    async with MockBackend(["m"], max_num_seqs=1) as one, MockBackend(["m"]) as two, MockBackend(["n"]) as lone:
        config = config_for(
            {
                "one": {"url": one.url, "engine": "vllm", "models": {"m": "m"}},
                "two": {"url": two.url, "engine": "vllm", "models": {"m": "m"}},
                "lone": {"url": lone.url, "engine": "vllm", "models": {"n": "n"}},
            }
        )
        one.script(*[Behaviour(stall_after_events=1)] * 3)
        two.script(*[Behaviour(stall_after_events=1)] * 3)
        async with running(config, tmp_path) as run, run.client() as client:
            backends = run.gateway.state.backends
            await until(lambda: backends["one"].scraped is not None and backends["two"].scraped is not None, "the first scrapes")
            assert backends["one"].queued == 0
            assert lone.requests_to("/metrics") == []
            ask: dict[str, Any] = {"model": "m", "messages": [], "stream": True}
            async with AsyncExitStack() as streams:
                for _ in range(4):
                    await streams.enter_async_context(client.stream("POST", "/v1/chat/completions", json=ask))
                await until(lambda: backends["one"].queued > 0, "the queue of the engine with one slot")
                assert backends["two"].queued == 0


def test_a_pause_that_was_asked_for_is_not_cut_short_by_a_longer_one_of_ours() -> None:
    clock = [0.0]
    breaker = Breaker(lambda: clock[0], trip_after=1, first_s=60, longest_s=60)
    breaker.faulted(breaker.begin(), "rate_limit", 10.0)
    assert breaker.asked
    breaker.faulted(breaker.begin(early=True), "status")
    assert breaker.asked, "ten seconds were asked for"
    clock[0] = 11.0
    assert not breaker.asked and breaker.state == "open"
