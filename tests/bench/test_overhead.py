"""The overhead suite: its arithmetic on made-up blocks, and short runs over real processes. No timing is judged here."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gateway.bench import cli, overhead, proctree, servers
from gateway.bench.blocks import Block
from gateway.bench.ctools import Tools
from gateway.bench.overhead import BARS, Measured, extra_of, figures_of, lanes_of, notes_of
from gateway.bench.proctree import Memory
from gateway.bench.report import Report
from gateway.bench.setup import Recorded

NAMES = {
    "cpu_us_per_request",
    "cpu_us_per_event",
    "added_p50_ms",
    "added_p99_ms",
    "rps_per_core",
    "rss_mb",
    "start_s",
    "nginx_cpu_us_per_request",
    "nginx_cpu_us_per_event",
    "request_x_nginx",
    "event_x_nginx",
    "routed_cpu_us_per_request",
    "cpu_us_per_candidate",
    "loop_lag_ms",
}


def block(series: str, *, cpu_us: float | None = None, seconds: float = 1.0, p50: float = 1.0, p99: float = 2.0, **more: Any) -> Block:
    values: dict[str, Any] = {"block": 0, "requests": 100, "errors": 0, "events": 0, "reads": 0, "problem": ""}
    values |= {"p50_ms": p50, "p99_ms": p99, "first_event_p50_ms": 0.0, "gap_p99_ms": 0.0}
    return Block(series=series, cpu_us=cpu_us, seconds=seconds, **(values | more))


def measured(*blocks: Block, **more: Any) -> Measured:
    defaults: dict[str, Any] = {
        "starts_s": (0.9, 0.5, 0.7),
        "memory": {"gateway": Memory(rss=70_000_000, pss=60_000_000, processes=1)},
        "unavailable": {},
        "shared_cpu": "",
        "on": {"keys": "1, by digest"},
        "recorded": Recorded(asked=1_000, counted=1_001, rows=1_001),
        "loop_lag_s": 0.05,
    }
    return Measured(blocks, **(defaults | more))


WHOLE = (
    block("gateway/requests", cpu_us=20_000, seconds=0.04),
    block("gateway/requests", cpu_us=18_000, seconds=0.05, block=1),
    block("gateway/weighted", cpu_us=22_000),
    block("learner/routed", cpu_us=31_000),
    block("decoder/decoded", cpu_us=128_000),
    block("gateway/single", cpu_us=30_000, p50=0.45, p99=0.9),
    block("gateway/single", cpu_us=31_000, p50=0.5, p99=0.7),
    block("gateway/streams", cpu_us=660_000, events=13_200, reads=13_200),
    block("nginx/requests", cpu_us=2_000),
    block("nginx/requests", cpu_us=2_500, block=1),
    block("nginx/streams", cpu_us=264_000, events=13_200, reads=13_200),
    block("nginx/single", cpu_us=6_000, p50=0.2, p99=0.3),
    block("direct/single", p50=0.05, p99=0.1),
    block("direct/single", p50=0.04, p99=0.12),
)


def test_figures_are_the_least_of_their_blocks() -> None:
    """And ratios the median of the blocks' own: 200 / 20 and 180 / 25. A candidate is an eighth of 1,280 us."""
    figures, reasons = figures_of(measured(*WHOLE))
    assert not reasons
    assert figures == pytest.approx(
        {
            "cpu_us_per_request": 180.0,
            "cpu_us_per_event": 50.0,
            "added_p50_ms": 0.41,
            "added_p99_ms": 0.6,
            "rps_per_core": 2_500.0,
            "rss_mb": 70.0,
            "start_s": 0.7,
            "nginx_cpu_us_per_request": 20.0,
            "nginx_cpu_us_per_event": 20.0,
            "request_x_nginx": 8.6,
            "event_x_nginx": 2.5,
            "routed_cpu_us_per_request": 310.0,
            "cpu_us_per_candidate": 160.0,
            "loop_lag_ms": 50.0,
        }
    )


def test_a_block_with_errors_does_not_count_and_says_why_when_it_is_the_only_one() -> None:
    failed = block("nginx/requests", cpu_us=1.0, problem="3 of 100 requests failed")
    assert figures_of(measured(*WHOLE, failed))[0]["nginx_cpu_us_per_request"] == pytest.approx(20.0)
    only = [one for one in WHOLE if one.series != "nginx/requests"]
    figures, reasons = figures_of(measured(*only, failed))
    assert figures["request_x_nginx"] is figures["nginx_cpu_us_per_request"] is None
    assert reasons["request_x_nginx"] == reasons["nginx_cpu_us_per_request"] == "3 of 100 requests failed"


def test_what_a_policy_adds_stands_beside() -> None:
    """A weighted draw of 22 ms / 100 requests; LinUCB 310 us, 130 more than a relayed request."""
    extra = extra_of(measured(*WHOLE))
    assert (extra["weighted_cpu_us_per_request"], extra["routed_added_us"]) == pytest.approx((220.0, 130.0))
    assert extra["routed_rss_mb"] is None
    memory = {"learner": Memory(rss=95_000_000, pss=80_000_000, processes=1)}
    assert extra_of(measured(*WHOLE, memory=memory))["routed_rss_mb"] == pytest.approx(95.0)


def test_lanes_are_set_beside_nginx() -> None:
    """asgi: 24 ms / 100 requests = 240 us, 12 times nginx's 20; route was not measured in streams."""
    lanes = (
        block("asgi/requests", cpu_us=24_000),
        block("asgi/streams", cpu_us=792_000, events=13_200, reads=13_200),
        block("route/requests", cpu_us=40_000),
    )
    found = lanes_of(measured(*WHOLE, *lanes))
    assert list(found) == ["hot", "asgi", "route"]
    assert found["hot"] == pytest.approx({"cpu_us_per_request": 180, "request_x_nginx": 8.6, "cpu_us_per_event": 50, "event_x_nginx": 2.5})
    assert found["asgi"] == pytest.approx({"cpu_us_per_request": 240, "request_x_nginx": 12, "cpu_us_per_event": 60, "event_x_nginx": 3})
    assert found["route"] == {"cpu_us_per_request": 400, "request_x_nginx": 20, "cpu_us_per_event": None, "event_x_nginx": None}


def test_a_run_in_which_not_every_request_left_its_trace_says_so() -> None:
    assert not any("NOT" in note for note in notes_of(measured(*WHOLE), None))
    for recorded in (Recorded(1_000, 1_000, 999), Recorded(1_000, None, 1_000), Recorded(1_000, 10, 1_000)):
        assert any(note.startswith("NOT everything was on") for note in notes_of(measured(*WHOLE, recorded=recorded), None))


def test_bunched_events_look_cheap_and_count_only_in_need() -> None:
    bunched = block("gateway/streams", cpu_us=132_000, events=13_200, reads=9_000)
    assert figures_of(measured(*WHOLE, bunched))[0]["cpu_us_per_event"] == pytest.approx(50.0)
    assert not any("too busy" in note for note in notes_of(measured(*WHOLE, bunched), None))
    only = measured(*(one for one in WHOLE if one.series != "gateway/streams"), bunched)
    assert figures_of(only)[0]["cpu_us_per_event"] == pytest.approx(10.0)
    assert any("too busy" in note and "gateway/streams" in note for note in notes_of(only, None))


def test_without_nginx_only_what_needs_it_is_null() -> None:
    ours = [one for one in WHOLE if not one.series.startswith("nginx/")]
    figures, reasons = figures_of(measured(*ours, unavailable={"nginx": "nginx is not installed"}))
    missing = {name for name in NAMES if "nginx" in name}
    assert {name for name, value in figures.items() if value is None} == missing
    assert reasons == dict.fromkeys(missing, "nginx is not installed")


def test_on_one_cpu_only_memory_and_start_can_be_had() -> None:
    figures, reasons = figures_of(measured(*WHOLE, shared_cpu="one CPU only"))
    assert {name for name, value in figures.items() if value is not None} == {"rss_mb", "start_s"}
    assert set(reasons) == NAMES - {"rss_mb", "start_s"}


@pytest.fixture
def cached(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled programs are looked for where the tests' own ones are."""
    folder = tmp_path / "trilemma" / "bench"
    folder.mkdir(parents=True)
    for program in (tools.mock, tools.lg):
        (folder / program.name).symlink_to(program)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def check_figures(report: dict[str, Any]) -> None:
    """All there; those that need no nginx, and with nginx all, are finite and, but for a difference of tails, positive."""
    assert set(report["figures"]) >= NAMES
    for name, value in report["figures"].items():
        if value is None:
            assert report["tables"]["reasons"][name]
        else:
            assert math.isfinite(value)
            assert value > 0 or name.startswith("added_")
    absent = {name for name, value in report["figures"].items() if value is None}
    one_cpu = len(os.sched_getaffinity(0)) < 2
    allowed = NAMES if one_cpu else {name for name in NAMES if "nginx" in name} if servers.nginx_program() is None else set()
    assert absent <= allowed


def test_a_quick_run_over_the_gateway(cached: None, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status = cli.main(["overhead", "--quick", "--json", "--out", str(tmp_path / "out"), "--raw", str(tmp_path / "raw")])
    output = capsys.readouterr()
    assert status == 0, output.err
    report = json.loads(output.out)
    assert set(report) == {"suite", "version", "commit", "seeds", "data", "figures", "tables"}
    assert report["suite"] == "overhead"
    assert set(report["data"]) == {"mock.c", "lg.c"}
    assert report["tables"]["bars"]["rps_per_core"] == {"least": 4_200}
    assert report["tables"]["bars"]["event_x_nginx"] == {"most": 2.3}
    assert report["tables"]["on"]["metrics"] == "on"
    assert report["tables"]["on"]["decision rows"] == "sqlite"
    recorded = report["tables"]["recorded"]
    assert recorded["asked"] > 300
    assert recorded["counted"] == recorded["rows"] >= recorded["asked"]
    assert set(report["tables"]["lanes"]) == {"hot", "asgi", "route"}
    assert not [one for one in report["tables"]["blocks"] if one["problem"]]
    check_figures(report)
    assert json.loads((tmp_path / "out" / "overhead.json").read_text()) == report
    for plot in (tmp_path / "out").glob("*.svg"):
        ElementTree.parse(plot)
    lines = (tmp_path / "raw" / "overhead_blocks.csv").read_text().splitlines()
    assert len(lines) == 1 + len(report["tables"]["blocks"])
    assert lines[0].startswith("series,block,requests,")


def test_another_server_can_be_measured_and_is_named(
    cached: None, tools: Tools, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "nginx_program", lambda: None)
    assert cli.main(["overhead", "--quick", "--command", f"{tools.mock} {{port}}"]) == 0
    text = capsys.readouterr().out
    assert f"NOT the gateway was measured but: {tools.mock}" in text
    assert [line.split() for line in text.splitlines() if line.startswith("request_x_nginx")] == [
        ["request_x_nginx", "-", "<=", "10", "MISSED"]
    ]
    assert "request_x_nginx: nginx is not installed" in text


def test_a_missed_bar_is_a_failure_only_when_asked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    figures, reasons = figures_of(measured(*WHOLE, starts_s=(1.6, 1.7, 1.6)))
    tables = {"bars": BARS, "reasons": reasons}
    report = Report(suite="overhead", commit=None, figures=figures, tables=tables)
    monkeypatch.setattr(overhead, "run", lambda *_: report)
    assert cli.main(["overhead", "--json"]) == 0
    assert capsys.readouterr().err == ""
    assert cli.main(["overhead", "--json", "--assert-bars"]) == 1
    output = capsys.readouterr()
    assert output.err == "missed: event_x_nginx, added_p50_ms, rps_per_core, start_s\n"  # 2.5; 0.41; 2,500; 1.6
    assert json.loads(output.out)["figures"]["start_s"] == 1.6


def test_sigterm_ends_every_process_that_was_started(cached: None, tools: Tools) -> None:
    command = [sys.executable, "-m", "gateway", "bench", "overhead", "--command", f"{tools.mock} {{port}}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any(line.startswith("block 0") for line in process.stderr)
        started = [pid for pid in proctree.tree(process.pid) if pid != process.pid]
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert len(started) >= 2
    assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
