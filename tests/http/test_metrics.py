"""/metrics: what requests came to, how the gateway stands, and who may know."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from gateway import __version__
from gateway.mock import Behaviour, MockBackend
from gateway.pool.breaker import Breaker
from gateway.serving.state import RealModel
from tests.support.asking import CHAT, error_of, question
from tests.support.raw import Wire, request, wire
from tests.support.running import KEY, Running, config_for, running
from tests.support.scraping import Scrape, scrape
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

USAGE = '{"prompt_tokens":1000,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":900}}'
ANSWER = f'{{"choices":[],"usage":{USAGE}}}'
# Four tokens and their usage.
EVENTS = (
    *(json.dumps({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}) for word in "abcd"),
    '{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":4}}',
    "[DONE]",
)


async def counted(client: httpx.AsyncClient, gateway: Running, requests: int, ask: Any) -> Scrape:
    """What `ask` added to the numbers, once that many requests have ended."""
    before, ended = await scrape(client), len(gateway.settled)
    await ask
    await gateway.until_settled(ended + requests)
    return (await scrape(client)).since(before)


# -- what is counted


async def test_a_whole_answer(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    """1,000 tokens of prompt, 900 of them cached, and 10 of answer, at 1, 0.1 and 2 USD per million."""
    mock.script(Behaviour(body=ANSWER, delay_headers_s=0.3))
    got = await counted(client, gateway, 1, client.post(CHAT, json=question()))

    requests = {"route": CHAT, "model": "mock-model", "strategy": "single", "status_class": "2xx", "error_type": ""}
    assert {series: value for series, value in got.items() if series[0] == "trilemma_requests_total"} == {
        ("trilemma_requests_total", frozenset(requests.items())): 1.0
    }
    assert got.of("trilemma_request_duration_seconds_count", route=CHAT, model="mock-model") == 1
    assert got.of("trilemma_request_duration_seconds_bucket", le="0.25") == 0
    assert got.of("trilemma_request_duration_seconds_bucket", le="30.0") == 1
    assert 0.3 <= got.of("trilemma_request_duration_seconds_sum") == pytest.approx(0.3, abs=0.25)
    assert got.of("trilemma_upstream_requests_total", backend="mock", outcome="ok", purpose="served") == 1
    assert got.of("trilemma_upstream_requests_total") == 1
    assert got.of("trilemma_upstream_duration_seconds_count", backend="mock") == 1
    tokens = {
        kind: got.of("trilemma_tokens_total", model="mock-model", purpose="served", type=kind)
        for kind in ("input", "cached_input", "output")
    }
    assert tokens == {"input": 100, "cached_input": 900, "output": 10}
    assert got.of("trilemma_cost_total", model="mock-model", purpose="served") == pytest.approx((100 + 900 * 0.1 + 10 * 2) / 1e6)
    # The wait for the engine is none of the gateway's time.
    assert got.of("trilemma_overhead_seconds_count", phase="before") == got.of("trilemma_overhead_seconds_count", phase="after") == 1
    assert 0 < got.of("trilemma_overhead_seconds_sum", phase="before") < 0.2
    assert 0 < got.of("trilemma_overhead_seconds_sum", phase="after") < 0.2
    for name in (
        "time_to_first_token_seconds_count",
        "decisions_total",
        "client_disconnects_total",
        "client_retries_total",
        "hedges_total",
    ):
        assert got.of(f"trilemma_{name}") == 0


async def test_a_stream(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    """The first event after 0.2 s; then three more tokens, whose pace is the rest of the time shared among them."""
    mock.script(Behaviour(events=EVENTS, first_token_delay_s=0.2, tokens_per_second=10))
    got = await counted(client, gateway, 1, client.post(CHAT, json=question(stream=True)))

    assert got.of("trilemma_requests_total", route=CHAT, status_class="2xx", error_type="") == 1
    assert got.of("trilemma_time_to_first_token_seconds_count", model="mock-model") == 1
    first = got.of("trilemma_time_to_first_token_seconds_sum")
    assert first >= 0.2
    assert got.of("trilemma_time_per_output_token_seconds_count", model="mock-model") == 1
    rest = got.of("trilemma_upstream_duration_seconds_sum", backend="mock") - first
    assert got.of("trilemma_time_per_output_token_seconds_sum") == pytest.approx(rest / 3, abs=0.01)
    assert got.of("trilemma_tokens_total", type="output") == 4
    assert got.of("trilemma_tokens_total", type="input") == 7


async def test_a_virtual_model_is_counted_by_what_was_asked_for_and_what_was_drawn(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running
) -> None:
    mock.script(Behaviour(body=ANSWER))
    got = await counted(client, gateway, 1, client.post(CHAT, json=question(model="auto")))
    assert got.labels("trilemma_requests_total", "model") == {"auto"}
    assert got.of("trilemma_decisions_total", policy="fixed", arm="a", explored="false") == 1
    assert got.labels("trilemma_tokens_total", "model") == {"mock-model"}
    assert got.of("trilemma_fallbacks_total") == 0


async def test_an_alias_counts_as_its_model(client: httpx.AsyncClient, gateway: Running) -> None:
    got = await counted(client, gateway, 1, client.post(CHAT, json=question(model="alias")))
    assert got.labels("trilemma_requests_total", "model") == {"mock-model"}
    assert got.of("trilemma_fallbacks_total") == 0


@pytest.mark.parametrize(
    ("behaviour", "body", "labels"),
    [
        (Behaviour(status=400, body='{"error":{"message":"no"}}'), question(), {"status_class": "4xx", "error_type": "caller_error"}),
        (Behaviour(status=401, body="{}"), question(), {"status_class": "5xx", "error_type": "backend_auth"}),
        (Behaviour(body="not json"), question(), {"status_class": "5xx", "error_type": "backend_bad_answer"}),
        (Behaviour(reset_after_events=1), question(stream=True), {"status_class": "2xx", "error_type": "backend_error"}),
        (Behaviour(), question(n="many"), {"status_class": "4xx", "error_type": "caller_invalid_value", "model": "none"}),
        (Behaviour(), question(model="nobody"), {"status_class": "4xx", "error_type": "model_not_found", "model": "other"}),
    ],
    ids=["refused", "our key", "no answer", "broken stream", "bad input", "unknown model"],
)
async def test_what_went_wrong_has_a_name(
    mock: MockBackend, client: httpx.AsyncClient, gateway: Running, behaviour: Behaviour, body: dict[str, Any], labels: dict[str, str]
) -> None:
    mock.script(default=behaviour)
    got = await counted(client, gateway, 1, client.post(CHAT, json=body))
    assert got.of("trilemma_requests_total", **labels) == 1
    assert got.of("trilemma_requests_total") == 1


async def test_callers_without_a_key(client: httpx.AsyncClient, gateway: Running) -> None:
    got = await counted(client, gateway, 1, client.post(CHAT, json=question(), headers={"authorization": "Bearer nonsense"}))
    assert got.of("trilemma_requests_total", model="none", status_class="4xx", error_type="invalid_api_key") == 1
    assert got.of("trilemma_overhead_seconds_count", phase="other") == 1
    assert got.of("trilemma_upstream_requests_total") == 0


async def test_callers_that_leave(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    mock.script(Behaviour(never_answer=True))

    async def leave() -> None:
        async with wire(gateway.url) as caller:
            caller.post(json.dumps(question()).encode())
            await mock.wait_for(lambda m: m.in_flight == 1)

    got = await counted(client, gateway, 1, leave())
    assert got.of("trilemma_client_disconnects_total") == 1
    assert got.of("trilemma_requests_total", status_class="none", error_type="client_closed") == 1
    assert got.of("trilemma_upstream_requests_total", outcome="cancelled") == 1


@pytest.mark.parametrize(("count", "retries"), [("0", 0), ("1", 1), ("12", 1), ("x", 0), ("", 0), ("-1", 0)])
async def test_requests_that_a_client_library_sends_again(client: httpx.AsyncClient, gateway: Running, count: str, retries: int) -> None:
    got = await counted(client, gateway, 1, client.post(CHAT, json=question(), headers={"x-stainless-retry-count": count}))
    assert got.of("trilemma_client_retries_total") == retries


async def test_another_model_that_stood_in(tmp_path: Path) -> None:
    async with MockBackend(["a"]) as a, MockBackend(["b"]) as b:
        backends = {name: {"url": each.url, "models": {name.upper(): name}} for name, each in (("a", a), ("b", b))}
        config = config_for(backends, models={"A": {"fallbacks": ["B"], "price": {"output": 1e5}}, "B": {"price": {"output": 2e5}}})
        config["virtual_models"] = {"auto": {"policy": "fixed", "plans": {"plan": {"model": "A"}}}}
        async with running(config, tmp_path) as run, run.client() as client:
            a.script(default=Behaviour(status=500, body='{"error":{}}', times=0))
            b.script(default=Behaviour(body=ANSWER))
            for model in ("A", "auto"):
                got = await counted(client, run, 1, client.post(CHAT, json=question(model=model)))
                assert got.of("trilemma_fallbacks_total", from_="A", to="B") == 1
                assert got.of("trilemma_fallbacks_total") == 1
                assert got.of("trilemma_requests_total", model=model, status_class="2xx", error_type="") == 1
                assert got.of("trilemma_upstream_requests_total", backend="a", outcome="backend_error") == 1
                assert got.of("trilemma_upstream_requests_total", backend="b", outcome="ok") == 1
                assert got.of("trilemma_cost_total", model="B") == 2
                assert got.of("trilemma_cost_total", model="A") == 0
                run.gateway.state.backends["a"].breaker = Breaker(asyncio.get_running_loop().time)


async def test_callers_cannot_make_series(client: httpx.AsyncClient, gateway: Running) -> None:
    """A thousand models, paths and keys that there are not: the numbers grow, their names do not."""

    async def nonsense(caller: Wire, number: int) -> None:
        made_up = f"made-up-{number}"
        body = json.dumps(question(model=made_up, trilemma={"session_id": made_up})).encode()
        caller.post(body)
        await caller.answer()
        caller.post(body, f"/v1/{made_up}/{number}")
        await caller.answer()
        caller.post(b"", f"/v1/{made_up}?model={made_up}")
        await caller.answer()
        caller.send(request(body).replace(KEY.encode(), made_up.encode()))
        await caller.answer()

    before = await scrape(client)
    async with wire(gateway.url) as caller:
        for number in range(500):
            await nonsense(caller, number)
        midway = await scrape(client)
        for number in range(500, 1_000):
            await nonsense(caller, number)
    after = await scrape(client)
    assert set(after) == set(midway)
    got = after.since(before)
    assert got.of("trilemma_requests_total") == 4_000
    assert got.of("trilemma_requests_total", route="other", model="other", error_type="model_not_found") == 2_000
    # Keys that are guessed are refused, and soon without a look at them.
    guessed = [
        got.of("trilemma_requests_total", route=CHAT, model="none", error_type=error)
        for error in ("invalid_api_key", "rate_limit_exceeded")
    ]
    assert sum(guessed) == 1_000
    assert "made" not in (await client.get("/metrics")).text


# -- how it stands


async def test_calls_that_run_and_backends(mock: MockBackend, client: httpx.AsyncClient, gateway: Running) -> None:
    await until(lambda: gateway.gateway.state.backends["mock"].probed_at is not None)
    idle = await scrape(client)
    assert idle.of("trilemma_inflight", backend="mock") == 0
    assert idle.of("trilemma_backend_up", backend="mock") == 1
    assert idle.of("trilemma_breaker_state", backend="mock") == 0
    assert 0 <= idle.of("trilemma_probe_age_seconds", backend="mock") < 60
    mock.script(Behaviour(never_answer=True), Behaviour(never_answer=True))
    asking = [asyncio.create_task(client.post(CHAT, json=question())) for _ in range(2)]
    await mock.wait_for(lambda m: m.in_flight == 2)
    busy = await scrape(client)
    assert busy.of("trilemma_inflight", backend="mock") == 2
    assert busy.of("trilemma_connections", side="backends") >= 2
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await until(lambda: gateway.in_flight() == 0)
    breaker = gateway.gateway.state.backends["mock"].breaker
    breaker.faulted(breaker.begin(), "connect")
    tripped = await scrape(client)
    assert tripped.of("trilemma_breaker_state", backend="mock") == 2
    assert tripped.of("trilemma_backend_up", backend="mock") == 0
    assert tripped.of("trilemma_inflight", backend="mock") == 0


async def test_what_runs(client: httpx.AsyncClient, gateway: Running) -> None:
    got = await scrape(client)
    assert got.of("trilemma_build_info", version=__version__) == 1
    shown = (await client.get("/admin/config")).json()["hash"]
    assert got.of("trilemma_config_info", hash=shown) == got.of("trilemma_config_info") == 1
    assert got.of("process_resident_memory_bytes") > 10e6
    assert got.of("process_cpu_seconds_total") > 0
    assert got.of("process_open_fds") > 3
    await until(lambda: gateway.app.telemetry.metrics.numbers.snapshot()["trilemma_loop_delay_seconds"])
    assert got.of("trilemma_loop_lag_seconds") >= 0
    assert got.has("trilemma_loop_delay_seconds_bucket", le="+Inf")


async def test_a_loop_that_was_late_shows(client: httpx.AsyncClient) -> None:
    import time

    before = await scrape(client)
    time.sleep(0.4)  # noqa: ASYNC251 (that is the fault)
    await asyncio.sleep(0.15)
    after = await scrape(client)
    assert after.of("trilemma_loop_lag_seconds") >= 0.25
    assert after.since(before).of("trilemma_loop_delay_seconds_bucket", le="+Inf") > after.since(before).of(
        "trilemma_loop_delay_seconds_bucket", le="0.25"
    )


def waiting(run: Running) -> int:
    model = run.gateway.state.names["m"]
    assert isinstance(model, RealModel) and model.admission is not None
    return model.admission.waiting


async def test_queues_rows_and_a_reload(mock: MockBackend, tmp_path: Path) -> None:
    """What a configuration takes away has no gauge any more; what it adds has one."""
    config = config_for(
        {"a": {"url": mock.url, "models": {"m": "mock-model"}}, "b": {"url": mock.url, "models": {"n": "mock-model"}}},
        models={"m": {"queue": {"slots": 1, "room": 5}}},
        storage={"url": f"sqlite:///{tmp_path}/rows.db"},
    )
    async with running(config, tmp_path / "state") as run, run.client() as client:
        await until(lambda: not run.gateway.state.unanswered())
        mock.script(Behaviour(never_answer=True))
        asking = [asyncio.create_task(client.post(CHAT, json=question(model="m"))) for _ in range(3)]
        await until(lambda: waiting(run) == 2)
        got = await scrape(client)
        assert got.of("trilemma_queue_running", model="m") == 1
        assert got.of("trilemma_queue_waiting", model="m") == 2
        assert not got.has("trilemma_queue_running", model="n")
        assert got.has("trilemma_outcome_log_waiting") and got.of("trilemma_outcome_log_dropped_total") == 0
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await run.until_settled(3)
        assert (await client.post(CHAT, json=question(model="n"))).status_code == 200

        run.config["backends"]["b"]["zz"] = 1
        assert (await client.post("/admin/config/reload")).status_code == 400
        assert (await scrape(client)).of("trilemma_config_reload_failures_total") == 1
        run.config["backends"] = {"c": {"url": mock.url, "models": {"m": "mock-model"}}}
        run.config["models"] = {}
        assert (await client.post("/admin/config/reload")).status_code == 200
        after = await scrape(client)
        assert after.labels("trilemma_inflight", "backend") == after.labels("trilemma_backend_up", "backend") == {"c"}
        assert after.labels("trilemma_decode_tokens_per_second", "pool") <= {"c"}
        assert not after.has("trilemma_queue_running")
        assert after.of("trilemma_upstream_requests_total", backend="b") == 1
        assert after.labels("trilemma_config_info", "hash") == {run.gateway.state.hash}


# -- who may know, and in which form


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


async def test_who_may_read_them(mock: MockBackend, tmp_path: Path) -> None:
    config = config_for({"a": {"url": mock.url, "models": {"m": "mock-model"}}})
    config["keys"] += [
        {"name": "scraper", "sha256": digest("sk-scraper"), "scopes": ["metrics"]},
        {"name": "user", "sha256": digest("sk-user"), "scopes": ["inference"]},
    ]
    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(running(config, tmp_path))
        anybody = await stack.enter_async_context(httpx.AsyncClient(base_url=run.url))
        admin, scraper, user = [await stack.enter_async_context(run.client(*key)) for key in ((), ("sk-scraper",), ("sk-user",))]
        refused = await anybody.get("/metrics")
        assert (refused.status_code, error_of(refused)["code"]) == (401, "invalid_api_key")
        refused = await user.get("/metrics")
        assert (refused.status_code, error_of(refused)["code"]) == (403, "caller_forbidden_scope")
        assert (await scraper.get("/metrics")).status_code == 200
        assert (await admin.get("/metrics")).status_code == 200
        # It opens nothing else.
        assert (await scraper.get("/admin/config")).status_code == 403
        assert (await scraper.post(CHAT, json=question(model="m"))).status_code == 403

        run.config["telemetry"] = {"metrics": {"public": True}}
        assert (await admin.post("/admin/config/reload")).status_code == 200
        assert (await anybody.get("/metrics")).status_code == 200
        run.config["telemetry"] = {"metrics": {"enabled": False, "public": True}}
        assert (await admin.post("/admin/config/reload")).status_code == 200
        refused = await admin.get("/metrics")
        assert (refused.status_code, error_of(refused)["code"]) == (404, "caller_not_found")


async def test_both_formats(client: httpx.AsyncClient) -> None:
    """What Prometheus sends as Accept decides; each text is read by the reader of its format."""
    plain = await client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {family.name: family for family in prometheus(plain.text)}
    assert found["trilemma_requests"].type == "counter"
    assert found["trilemma_request_duration_seconds"].type == "histogram"
    assert found["trilemma_inflight"].type == "gauge"
    assert all(family.documentation for family in found.values())
    other = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert other.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert other.text.endswith("# EOF\n")
    named = {family.name for family in openmetrics(other.text)}
    assert {"trilemma_requests", "trilemma_build", "trilemma_loop_delay_seconds"} <= named


async def test_a_gateway_that_nobody_scrapes_does_not_carry_the_library() -> None:
    import subprocess
    import sys

    code = "import gateway.app, gateway.serve, sys; print({'prometheus_client', 'opentelemetry.sdk', 'google.protobuf'} & set(sys.modules))"
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
