"""Short runs of the command over real processes. No timing is judged here."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.load.arrivals import asks
from gateway.load.figures import names
from gateway.load.outcome import KINDS
from gateway.load.report import Report
from gateway.load.run import run
from gateway.load.scenario import ScenarioError, read_scenario
from tests.load.making import scenario
from tests.support.processes import alive, family, until
from tests.support.running import KEY, Running

RICH = {
    "name": "rich",
    "about": "a little of everything",
    "duration_s": 4,
    "patience_s": 15,
    "settle_s": 1,
    "backends": {
        "mock": {"count": 2, "first_token_s": 0.02, "tokens_per_second": 200},
        "cheap": {"kind": "c", "model": "cheap", "first_token_s": 0, "tokens_per_second": 100},
    },
    "tenants": {"a": {"share": 2}, "b": {}},
    "load": {
        "chat": {"poisson": 25, "stream": 0.6, "max_tokens": [10, 30], "leave": {"share": 0.3, "after_events": [2, 5]}},
        "cheap": {"constant": 5, "for_s": 1, "model": "cheap"},
        "large": {"burst": {"size": 1, "at": [0.5]}, "stream": 0, "prompt_bytes": 300_000, "max_tokens": 2},
    },
    "faults": [
        {"do": "errors", "at": 1.2, "for_s": 0.6, "backend": "mock", "status": 500},
        {"do": "kill", "at": 2.4, "backend": "mock-1"},
        {"do": "restart", "at": 3, "backend": "mock-1"},
    ],
    "expect": {"hung": 0, "cheap.complete": 5, "rss_peak_mb": {"max": 1}},
}


@dataclass(frozen=True)
class Ran:
    """A run of RICH through the command."""

    status: int
    stdout: bytes
    stderr: str
    out: Path
    file: Path

    @property
    def report(self) -> Report:
        return msgspec.json.decode(self.stdout, type=Report)

    @property
    def figures(self) -> dict[str, float]:
        return {name: value for name, value in self.report.figures.items() if value is not None}


def written(folder: Path, parts: dict[str, Any]) -> Path:
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(parts))
    return file


def load(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gateway", "load", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("rich")
    file = written(folder, RICH)
    done = load(file, "--json", "--out", folder / "out")
    return Ran(done.returncode, done.stdout, done.stderr.decode(), folder / "out", file)


def test_a_missed_expectation_is_the_exit_status_and_is_told(ran: Ran) -> None:
    assert ran.status == 1, ran.stderr
    assert "missed: rss_peak_mb <= 1" in ran.stderr
    assert [(one.figure, one.kept) for one in ran.report.expectations] == [("hung", True), ("cheap.complete", True), ("rss_peak_mb", False)]
    assert ran.report.passed is False


def test_the_report_is_one_object_with_every_figure(ran: Ran) -> None:
    assert list(json.loads(ran.stdout)["figures"]) == names(read_scenario(ran.file))
    assert (ran.out / "rich.json").read_bytes() == ran.stdout
    report = ran.report
    assert (report.scenario, report.seed, report.duration_s, report.data) == ("rich", 1, 4.0, {})
    assert set(report.tables) == {"tenants", "statuses", "faults", "backends", "placements", "timeline", "machine", "versions", "notes"}
    assert "figure" in report.text()


def test_counts_add_up(ran: Ran) -> None:
    made = asks(read_scenario(ran.file))
    figures = ran.figures

    assert figures["offered"] == len(made) == sum(figures[kind] for kind in KINDS)
    for name in ("chat", "cheap", "large"):
        assert figures[f"{name}.offered"] == sum(ask.load == name for ask in made)
    for kind in KINDS:
        assert figures[kind] == sum(figures[f"{name}.{kind}"] for name in ("chat", "cheap", "large"))
    tables = ran.report.tables
    assert sum(tables["statuses"].values()) == len(made)
    assert sum(row.get(kind, 0) for row in tables["timeline"] for kind in KINDS) == len(made)
    assert sum(one["served"] for one in tables["tenants"].values()) == figures["complete"]
    assert sum(one["offered"] for one in tables["tenants"].values()) == len(made) - figures["left"]


def test_every_request_is_told(ran: Ran) -> None:
    made = asks(read_scenario(ran.file))
    with (ran.out / "rich_requests.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))

    assert [(row["load"], row["tenant"]) for row in rows] == [(ask.load, ask.tenant) for ask in made]
    assert [float(row["at"]) for row in rows] == pytest.approx([ask.at for ask in made])
    assert Counter(row["kind"] for row in rows) == Counter({kind: int(ran.figures[kind]) for kind in KINDS if ran.figures[kind]})
    assert all(float(row["sent"]) >= float(row["at"]) - 0.01 for row in rows if row["sent"])


def test_requests_are_served_and_callers_leave(ran: Ran) -> None:
    figures = ran.figures

    assert figures["complete"] > 0.3 * figures["offered"]
    assert figures["cheap.complete"] == 5
    assert figures["left"] > 0
    assert figures["backend_aborted"] > 0
    assert figures["backend_requests"] > 0


def test_the_faults_happened(ran: Ran) -> None:
    happened = {(one["do"], one["backend"]): one for one in ran.report.tables["faults"]}

    assert set(happened) == {("errors", "mock-0"), ("errors", "mock-1"), ("kill", "mock-1"), ("restart", "mock-1")}
    errors = [happened["errors", name] for name in ("mock-0", "mock-1")]
    assert sum(one["requests"] for one in errors) > 0
    assert all(1.19 < one["began"] < one["ended"] for one in errors)
    assert 2.39 < happened["kill", "mock-1"]["began"] <= happened["restart", "mock-1"]["began"]
    assert set(ran.report.tables["backends"]) == {"mock-0", "mock-1"}  # both answer at the end; the C mock counts nothing
    assert ran.figures["complete"] < ran.figures["offered"] - ran.figures["left"] or ran.figures["attempts_max"] > 1


def test_the_gateway_was_watched(ran: Ran) -> None:
    figures = ran.figures

    assert figures["gateway_alive"] == 1
    assert figures["gateway_cpu_s"] > 0
    assert 0 <= figures["gateway_waited_share"] < 1
    assert figures["rss_peak_mb"] >= figures["rss_before_mb"] > 10
    assert figures["sockets_peak"] > figures["sockets_before"] > 0
    assert figures["health_max_ms"] >= figures["health_p99_ms"] >= figures["health_p50_ms"] > 0
    assert figures["client_lag_max_ms"] >= figures["client_lag_p99_ms"] >= 0
    assert figures["in_flight_after"] == 0
    assert figures["backends_in_flight_after"] == 0


def test_logs_and_the_configuration_are_kept(ran: Ran) -> None:
    logs = ran.out / "rich_logs"

    assert {file.name for file in logs.iterdir()} >= {"gateway.json", "gateway.log", "mock-0.log", "mock-1.log", "cheap.log"}
    config = json.loads((logs / "gateway.json").read_text())
    assert config["backends"]["cheap"]["models"] == {"cheap": "mock-slow"}
    assert [key["name"] for key in config["keys"]] == ["load-admin", "a", "b"]


def test_a_signal_ends_the_run_and_all_it_started(tmp_path: Path) -> None:
    file = written(tmp_path, RICH | {"duration_s": 60, "expect": {}})
    log = tmp_path / "stderr.txt"
    with log.open("wb") as sink, subprocess.Popen([sys.executable, "-m", "gateway", "load", str(file)], stderr=sink) as process:
        until(lambda: "the load begins" in log.read_text() or process.poll() is not None, "the load begins", 60)
        everybody = family(process.pid)
        assert len(everybody) == 5, log.read_text()  # itself, two mocks, the C mock, the gateway

        process.send_signal(signal.SIGTERM)

        assert process.wait(30) == 128 + signal.SIGTERM
        assert alive(everybody) == []


def test_a_gateway_that_does_not_start_says_why(tmp_path: Path) -> None:
    done = load(written(tmp_path, {**RICH, "gateway": {"config": {"sever": {}}}, "expect": {}}))

    assert done.returncode == 2
    assert b"gateway ended before it answered" in done.stderr
    assert b"sever: unknown key" in done.stderr
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"expect": {"faild": 0}}, b"there are no such figures: faild"),
        ({"expect": {"other.failed": 0}}, b"there are no such figures: other.failed"),
        ({"duration_s": -1}, b"`duration_s` above 0"),
    ],
)
def test_what_cannot_be_run_is_told_before_anything_starts(tmp_path: Path, parts: dict[str, Any], said: bytes) -> None:
    done = load(written(tmp_path, RICH | parts))

    assert done.returncode == 2
    assert said in done.stderr


def elsewhere(gateway: Running, **load: Any) -> Any:
    made = {"constant": 20, "model": "mock-model", "max_tokens": 5, "stream": 0.5} | load
    return scenario(target={"url": gateway.url, "key_env": "LOAD_TEST_KEY"}, duration_s=1, load={"chat": made}, patience_s=10)


async def test_a_gateway_that_runs_elsewhere_gets_the_same_load(gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD_TEST_KEY", KEY)
    told: list[str] = []

    seen = await run(elsewhere(gateway), tmp_path, told.append)

    assert Counter(record.kind for record in seen.records) == {"complete": 20}
    assert len(gateway.settled) == 21  # one was tried before
    assert {receipt.outcome for receipt in gateway.settled} == {"ok"}
    assert (seen.before, seen.backends, seen.settled.in_flight) == (None, {}, None)
    assert all(record.attempts == 1 for record in seen.records)
    assert told[0].startswith("test: 20 requests in 1 s")


async def test_a_load_that_is_refused_does_not_begin(gateway: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOAD_TEST_KEY", "sk-wrong")

    with pytest.raises(ScenarioError, match=r"load\.chat: one request tried before the load was answered with 401 invalid_api_key"):
        await run(elsewhere(gateway), tmp_path, lambda _: None)
