"""Other gateways beside ours: how they are set up, started and installed, and the arithmetic of the table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gateway.bench import servers
from gateway.bench.blocks import Block
from gateway.bench.ctools import BenchError, Tools, compile_tools
from gateway.bench.proctree import Memory
from gateway.bench.setup import KEY
from loadtests.peers import __main__ as cli
from loadtests.peers import environments
from loadtests.peers.catalogue import PEERS
from loadtests.peers.environments import InstallError, install, missing, pip_commands, unwanted
from loadtests.peers.measure import Contender, Row, Sizes, all_series, contender, figures_of, measure, ours
from loadtests.peers.peer import Launch, Peer, Place, Work
from loadtests.peers.table import Result, cells, notes_of, shortened, times

NAMES = [peer.name for peer in PEERS]
BY_NAME = {peer.name: peer for peer in PEERS}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    return compile_tools(tmp_path_factory.mktemp("compiled"))


def launched(name: str) -> Launch:
    return BY_NAME[name].launch(Place(Path("/scratch"), Path("/env/bin"), 8_081, 8_082))


def options(command: Sequence[str]) -> dict[str, str]:
    """Option -> value, of a command in which each has one."""
    start = next(place for place, word in enumerate(command) if word.startswith("--"))
    return dict(zip(command[start::2], command[start + 1 :: 2], strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_is_started_by_its_own_program_without_a_shell(name: str) -> None:
    command = launched(name).command
    assert Path(command[0]).parent == Path("/env/bin")
    assert all(isinstance(word, str) and word for word in command)
    assert not {Path(word).name for word in command} & {"sh", "bash", "env", "-c"}
    assert not [word for word in command if re.search(r"[;&|<>$`\n]", word)]


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_is_pinned(name: str) -> None:
    peer = BY_NAME[name]
    pins = [word for step in peer.steps for word in step if not word.startswith(("-", "/"))]
    lists = [Path(word) for step in peer.steps for word in step if word.startswith("/")]
    pins += [line for file in lists for line in file.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+(\[\w+\])?==[\w.]+", pin) for pin in pins)
    assert any(pin.endswith(f"=={peer.version}") and re.split(r"[\[=]", pin)[0] == name for pin in pins)
    assert unwanted(pins) == []


@pytest.mark.parametrize("name", ["vllm-router", "sglang-router"])
def test_a_router_is_told_its_worker_and_ports(name: str) -> None:
    told = options(launched(name).command)
    assert told["--worker-urls"] == "http://127.0.0.1:8082"
    assert (told["--host"], told["--port"]) == ("127.0.0.1", "8081")
    assert told["--prometheus-port"] not in ("8081", "8082")
    assert launched(name).files == {}


def test_tensorzero_is_told_its_models_and_keeps_to_itself() -> None:
    launch = launched("tensorzero")
    config = tomllib.loads(launch.files["tensorzero.toml"])
    assert config["gateway"] == {"disable_pseudonymous_usage_analytics": True, "observability": {"enabled": False}}
    assert set(config["models"]) == {"mock", "mock-slow"}
    for name, model in config["models"].items():
        assert model["routing"] == list(model["providers"]) == ["backend"]
        assert model["providers"]["backend"] == {
            "type": "openai",
            "model_name": name,
            "api_base": "http://127.0.0.1:8082/v1/",
            "api_key_location": "none",
        }
    assert launch.names_its_port
    assert launch.command[2:] == ["/scratch/tensorzero.toml", "/scratch/port"]
    assert BY_NAME["tensorzero"].ask.model == "tensorzero::model_name::mock"
    assert BY_NAME["tensorzero"].paced_model == "tensorzero::model_name::mock-slow"


TENSORZERO = """
import sys, types
def start(*, config_file, clickhouse_url, postgres_url, valkey_url, async_setup):
    assert open(config_file).read() == "config" and not any((clickhouse_url, postgres_url, valkey_url, async_setup))
    return types.SimpleNamespace(base_url="http://127.0.0.1:4711/openai/v1")
sys.modules["tensorzero"] = types.SimpleNamespace(_start_http_gateway=start)
import signal, runpy
signal.pause = lambda: None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_tensorzero_names_its_port(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("config")
    words = [launched("tensorzero").command[1], str(tmp_path / "config"), str(tmp_path / "port")]
    subprocess.run([sys.executable, "-c", TENSORZERO, *words], check=True)
    assert (tmp_path / "port").read_text() == "4711"


def test_litellm_is_told_its_models_and_the_key() -> None:
    launch = launched("litellm")
    config = yaml.safe_load(launch.files["litellm.yaml"])
    assert [one["model_name"] for one in config["model_list"]] == ["mock", "mock-slow"]
    for one in config["model_list"]:
        assert one["litellm_params"] == {
            "model": f"openai/{one['model_name']}",
            "api_base": "http://127.0.0.1:8082/v1",
            "api_key": "none",
        }
    assert config["general_settings"] == {"master_key": KEY}
    assert options(launch.command) == {"--config": "/scratch/litellm.yaml", "--host": "127.0.0.1", "--port": "8081"}
    assert launch.environment["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"


def test_optillm_is_told_its_backend() -> None:
    told = options(launched("optillm").command)
    assert (told["--base-url"], told["--port"]) == ("http://127.0.0.1:8082/v1", "8081")
    assert told["--approach"] == "none"
    assert BY_NAME["optillm"].steps[0] == ["torch==2.13.0"]


def test_packages_for_graphics_cards_are_not_wanted() -> None:
    assert unwanted(["torch", "nvidia-cublas", "Triton", "cuda-toolkit", "numpy"]) == ["Triton", "cuda-toolkit", "nvidia-cublas"]


def test_what_an_installation_would_bring_is_asked_before_it_is_brought() -> None:
    python, report = Path("/env/bin/python"), Path("/env/report.json")
    found = list(pip_commands(python, [["a==1"], ["--no-deps", "--requirement", "b.txt"]], report))
    assert [ask[ask.index("--dry-run") :] for ask, _ in found] == [
        ["--dry-run", "--report", "/env/report.json", "a==1"],
        ["--dry-run", "--report", "/env/report.json", "--no-deps", "--requirement", "b.txt"],
    ]
    assert [bring[:4] for _, bring in found] == [["/env/bin/python", "-m", "pip", "install"]] * 2
    assert not any("--dry-run" in bring for _, bring in found)


def peer(name: str = "some", steps: Sequence[Sequence[str]] = (("some==1",),)) -> Peer:
    return Peer(name, "Some", "1", steps, lambda place: Launch([str(place.programs / "some")]), "odd")


class Machine:
    """Installs nothing: `bring` says what each step would bring, and `fails` which one breaks off."""

    def __init__(self, bring: Sequence[str] = (), fails: str = "") -> None:
        self.commands: list[Sequence[str]] = []
        self._bring, self._fails = bring, fails

    def run(self, command: Sequence[str], **kwargs: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        assert "PYTHONDONTWRITEBYTECODE" not in kwargs["env"]
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        if "--report" in command:
            report = {"install": [{"metadata": {"name": name}} for name in self._bring]}
            Path(command[command.index("--report") + 1]).write_text(json.dumps(report))
        broken = self._fails and self._fails in command and "--dry-run" not in command
        return subprocess.CompletedProcess(command, int(bool(broken)), "some==1\n", "ERROR: no such thing\nfarewell\n" if broken else "")


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(subprocess, "run", machine.run)
    assert "install some" in missing(peer(), tmp_path)
    assert install(peer(), tmp_path)
    assert missing(peer(), tmp_path) == ""
    made = len(machine.commands)
    assert not install(peer(), tmp_path)
    assert len(machine.commands) == made
    assert install(peer(steps=[["some==2"]]), tmp_path)


@pytest.mark.parametrize(
    ("machine", "reason"),
    [
        (Machine(bring=["torch", "nvidia-cublas"]), "left out, for it would bring nvidia-cublas"),
        (Machine(fails="some==1"), "pip: ERROR: no such thing"),
    ],
)
def test_what_cannot_be_installed_leaves_its_reason_and_nothing_else(
    machine: Machine, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", machine.run)
    with pytest.raises(InstallError, match=re.escape(reason)):
        install(peer(), tmp_path)
    assert missing(peer(), tmp_path) == reason
    assert [path.name for path in tmp_path.iterdir()] == ["some.problem"]


def test_an_installation_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Sequence[str], *, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(InstallError, match="too long"):
        install(peer(), tmp_path)


def block(series: str, cpu_us: float | None = None, **more: Any) -> Block:
    values: dict[str, Any] = {"block": 0, "requests": 100, "errors": 0, "events": 0, "reads": 0, "seconds": 1.0, "problem": ""}
    values |= {"p50_ms": 1.0, "p99_ms": 2.0, "first_event_p50_ms": 0.0, "gap_p99_ms": 0.0}
    return Block(series=series, cpu_us=cpu_us, **(values | more))


BLOCKS = [
    block("nginx/requests", 2_000, seconds=0.002),
    block("nginx/requests", 2_500),
    block("some/requests", 30_000, seconds=0.04, p50_ms=10.0, p99_ms=20.0),
    block("some/requests", 24_000, seconds=0.05, p50_ms=12.0, p99_ms=18.0),
    block("direct/single", p50_ms=0.25, p99_ms=0.5),
    block("some/single", 40_000, p50_ms=1.25, p99_ms=3.5),
    block("nginx/streams", 4_000, events=200, reads=200),
    block("some/streams", 10_000, events=200, reads=200, first_event_p50_ms=3.0),
]


def test_figures_of_a_gateway_by_hand() -> None:
    """240 us a request is 12 times nginx's 20, 50 us an event 2.5 times nginx's 20; 100 requests in 0.04 s are 2,500/s."""
    figures, reasons = figures_of("some", BLOCKS, Memory(50_000_000, 40_000_000, 2), 1.5)
    assert reasons == {}
    assert figures == pytest.approx(
        {
            "cpu_us_per_request": 240,
            "request_x_nginx": 12,
            "rps": 2_500,
            "p50_ms": 10,
            "p99_ms": 18,
            "cpu_us_per_request_1_connection": 400,
            "added_p50_ms": 1,
            "added_p99_ms": 3,
            "cpu_us_per_event": 50,
            "event_x_nginx": 2.5,
            "first_event_p50_ms": 3,
            "rss_mb": 50,
            "start_s": 1.5,
        }
    )


def test_figures_that_cannot_be_had_have_reasons() -> None:
    alone = [one for one in BLOCKS if not one.series.startswith("nginx/")]
    figures, reasons = figures_of("some", alone, Memory(1, 1, 1), 1.0, "it does not stream")
    assert figures["cpu_us_per_request"] == 240
    assert figures["request_x_nginx"] is figures["cpu_us_per_event"] is None
    assert reasons["request_x_nginx"] == "nginx/requests was not measured"
    assert reasons["event_x_nginx"] == reasons["first_event_p50_ms"] == "it does not stream"


def row(name: str, problem: str = "", **figures: float | None) -> Row:
    return Row(name, name.title(), "1.0", "odd", problem, figures)


def test_the_table_compares_by_way_of_nginx() -> None:
    """Ours is 8 times nginx, some is 12 times nginx in its own minutes: 1.5 times ours, whatever the machine did meanwhile."""
    ours = row("trilemma", request_x_nginx=8.0, event_x_nginx=2.0, cpu_us_per_request=160.0)
    some = row("some", request_x_nginx=12.0, event_x_nginx=None, cpu_us_per_request=480.0)
    assert times(some, ours, "request_x_nginx") == 1.5
    assert times(some, ours, "event_x_nginx") is times(some, None, "request_x_nginx") is None
    head, *lines = cells([ours, some, row("gone", "gone ended with status 1:\nmany\nwords\nKeyError: 'x'")])
    assert [line[:5] for line in lines] == [
        ("Trilemma 1.0", "160.0", "8", "1", "-"),
        ("Some 1.0", "480.0", "12.0", "1.5", "-"),
        ("Gone 1.0", "-", "-", "-", "-"),
    ]
    assert {len(head)} == {len(line) for line in lines}
    assert lines[1][-1] == "odd"
    assert lines[2][-1] == "not measured: gone ended with status 1: ... KeyError: 'x'"


def test_long_problems_fit_in_a_cell() -> None:
    assert shortened("one line") == "one line"
    assert len(shortened("x" * 1_000)) == 160


def test_other_work_than_usual_is_said() -> None:
    one, other = ours()[0], replace(ours()[0], title="Slow", work=Work(connections=4, stream_connections=8))
    assert notes_of([one]) == notes_of([one, other])[:-2]
    assert notes_of([one, other])[-2:] == [
        "Slow, and nginx beside it: 4 connections at once.",
        "Slow, and nginx beside it: 8 streams at once.",
    ]


def test_results_are_written_for_machines_terminals_and_pages() -> None:
    machine = {"cpus": 2, "cpu": "Abacus", "system": "Linux 6", "load_average": [0.5, 1, 2]}
    rows = [row("nginx", request_x_nginx=1.0), row("some", "no such thing")]
    rows.append(msgspec.structs.replace(row("odd"), reasons={"a": "no a", "b": "no b", "c": "no a"}))
    result = Result(version="1", commit="abc", data={}, sizes=Sizes(), seconds=1.0, rows=rows, machine=machine, notes=["Mind."])
    assert json.loads(result.json())["rows"][1]["problem"] == "no such thing"
    assert "Some 1.0: not measured: no such thing" in result.text().splitlines()
    assert result.text().splitlines()[-3:-1] == ["Odd, a, c: no a", "Odd, b: no b"]
    page = result.markdown().splitlines()
    assert page[2].startswith("| Nginx 1.0 | - | 1 |")
    assert page[3].endswith("| not measured: no such thing |")
    assert page[-1] == "Version 1, commit abc; 2 CPUs (Abacus), Linux 6, load average 0.5 before."


def test_smoke_runs_are_smaller() -> None:
    assert Work(6_000, 1_000, 64, 32, 64).shrunk(40) == Work(150, 25, 2, 32, 2)
    assert Work(32, 10, 64, 4, 64).shrunk(40) == Work(1, 1, 2, 1, 2)


def test_nginx_is_given_as_many_connections(tools: Tools) -> None:
    one = replace(ours()[0], name="some", work=Work(96, 30, 8, 16, 8), events=131)
    server = servers.Server("x", 1, 1, 0.0)
    found = {series.name: series for series in all_series(one, server, server, server, 1)}
    assert set(found) == {f"{name}/{kind}" for name in ("nginx", "some") for kind in ("requests", "single", "streams")} | {"direct/single"}
    for kind in ("requests", "single", "streams"):
        assert found[f"nginx/{kind}"].load.connections == found[f"some/{kind}"].load.connections
    assert (found["some/streams"].events, found["nginx/streams"].events) == (131, 132)
    without = all_series(replace(one, without_streams="no"), server, server, None, 1)
    assert [series.name for series in without] == ["direct/single", "some/requests", "some/single"]


def mocked(tools: Tools) -> Contender:
    """A gateway that is the mock itself, behind no backend."""

    @contextmanager
    def running(site: servers.Site, backend: int) -> Any:
        with servers.mock_backend(site, tools.mock) as server:
            yield server

    return replace(ours()[0], name="some", title="Some", running=running)


def test_each_gateway_is_measured_and_a_broken_one_is_a_line(tools: Tools, tmp_path: Path) -> None:
    broken = contender(peer("broken"))

    @contextmanager
    def ends(site: servers.Site, backend: int) -> Any:
        with servers.running("broken", [sys.executable, "-c", "raise SystemExit('no licence')"], 1, site) as server:
            yield server

    said: list[str] = []
    rows = measure([replace(broken, running=ends), mocked(tools)], Sizes(1, 100, 0.0), tmp_path, tools, said.append)
    assert [one.name for one in rows] == ["nginx", "broken", "some"]
    assert re.search(r"(?s)status 1 .*no licence", rows[1].problem)
    assert rows[2].problem == ""
    assert rows[2].figures["cpu_us_per_request"]
    if servers.nginx_program() is None:
        assert "not installed" in rows[0].problem
        assert rows[2].figures["request_x_nginx"] is None
    else:
        assert rows[0].figures["request_x_nginx"] == 1.0
        assert rows[2].figures["event_x_nginx"]


def test_a_peer_that_is_not_there_is_a_line_with_its_reason(
    tools: Tools, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n<!-- peers -->\n<!-- /peers -->\n")
    monkeypatch.setattr(cli, "PEERS", (peer("some"),))
    monkeypatch.setattr(cli, "compile_tools", lambda: tools)
    monkeypatch.setattr(cli, "ours", lambda: [replace(mocked(tools), name="trilemma")])
    assert cli.main(["run", "--quick", "--json", "--out", str(tmp_path / "out"), "--into", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in result["rows"]] == ["nginx", "trilemma", "some"]
    assert result["rows"][2]["problem"] == "not installed: python -m loadtests.peers install some"
    assert json.loads((tmp_path / "out" / "peers.json").read_text()) == result
    assert (tmp_path / "out" / "peers.md").read_text() in page.read_text()
    assert "| Some 1 | - |" in page.read_text()


def test_install_says_what_was_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(one: Peer) -> bool:
        if one.name == "bad":
            raise InstallError("too large")
        return one.name == "new"

    monkeypatch.setattr(cli, "PEERS", (peer("new"), peer("old"), peer("bad")))
    monkeypatch.setattr(environments, "install", installed)
    assert cli.main(["install", "new", "old"]) == 0
    assert cli.main(["install"]) == 1
    assert capsys.readouterr().err.splitlines()[-3:] == ["new: installed in 0 s", "old: stands", "bad: too large"]


def test_a_machine_on_which_nothing_can_be_measured_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler() -> Tools:
        raise BenchError("no C compiler")

    monkeypatch.setattr(cli, "compile_tools", no_compiler)
    assert cli.main(["run", "vllm-router"]) == 2
    assert capsys.readouterr().err == "peers: no C compiler\n"


def test_a_peer_that_nobody_knows_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", "nobody"])
    assert "there is no peer 'nobody'" in capsys.readouterr().err
