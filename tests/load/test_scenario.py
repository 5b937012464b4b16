from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.load.arrivals import asks
from gateway.load.faults import Scripted
from gateway.load.report import unknown_figures
from gateway.load.scenario import Bound, ScenarioError, read_scenario
from tests.load.making import scenario

SHIPPED = sorted((Path(__file__).parents[2] / "loadtests/scenarios").glob("*.yaml"))
LONGEST_S = 110  # with starting and settling, a run takes no more than two minutes


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_what_ships_can_be_run_in_two_minutes(file: Path) -> None:
    one = read_scenario(file)

    assert one.name == file.stem
    assert unknown_figures(one) == []
    assert one.expect
    healthy = {load: one.healthy(one.load[load].model) for load in one.load}
    for ask in asks(one):
        group = healthy[ask.load]
        assert group is not None
        assert ask.leave_at is not None or ask.at + group.first_token_s + ask.max_tokens / group.tokens_per_second < LONGEST_S
    assert all(fault.at + (fault.for_s if isinstance(fault, Scripted) else 0) <= one.duration_s for fault in one.faults)


def test_every_kind_of_scenario_ships() -> None:
    assert {file.stem for file in SHIPPED} == {
        "abort_storm",
        "azure_code",
        "azure_conv",
        "fallback",
        "flapping",
        "hedging",
        "kill_one_of_three",
        "lying_backends",
        "mooncake",
        "overload",
        "rolling_drain",
        "slow_clients",
        "thousand_streams",
    }


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"lod": {}}, "unknown field `lod`"),
        ({"load": {}}, "give at least one `load`"),
        ({"load": {"chat": {"constant": 1, "poisson": 2}}}, "give one of `constant`, `poisson`, `burst`, `trace`"),
        ({"load": {"chat": {}}}, "give one of `constant`, `poisson`, `burst`, `trace`"),
        ({"load": {"chat": {"constant": 0}}}, "a rate must be above 0"),
        ({"load": {"chat": {"constant": 1, "stream": 2}}}, "`stream` is a share"),
        ({"load": {"chat": {"constant": 1, "model": "gpt"}}}, "load.chat: no backend serves `gpt`"),
        ({"load": {"chat": {"constant": 1, "from_s": 10}}}, "load.chat: it would never begin"),
        ({"load": {"chat": {"constant": 1, "tenants": {"x": 1}}}}, "load.chat: unknown tenants; there are default"),
        ({"load": {"chat": {"trace": {"name": "azure"}}}}, "there is no trace `azure`; there are azure_conv, azure_code, mooncake_conv"),
        ({"load": {"chat": {"constant": 1, "leave": {"share": 1}}}}, "give one of `after_events`, `after_s`, `between`"),
        ({"backends": {}}, "give `backends` (a gateway is started over them) or `target`"),
        ({"backends": {"mock": {"count": 0}}}, "`count` must be at least 1"),
        ({"backends": {"mock": {"kind": "c"}}}, "the C mock takes first_token_s 0"),
        ({"faults": [{"do": "kill", "at": 1, "backend": "mock-7"}]}, "there is no backend `mock-7`; there are mock"),
        ({"faults": [{"do": "kill", "at": -1, "backend": "mock"}]}, "not below 0"),
        ({"faults": [{"do": "html", "at": 1, "backend": "mock"}]}, "missing required field `for_s`"),
        ({"faults": [{"do": "html", "at": 1, "for_s": 0, "backend": "mock"}]}, "`for_s` must be above 0"),
        ({"faults": [{"do": "explode", "at": 1, "backend": "mock"}]}, "Invalid value 'explode'"),
        ({"faults": [{"do": "kill", "at": 1, "backend": "mock", "status": 500}]}, "unknown field `status`"),
        ({"backends": {"mock": {"kv_tokens": 31}}}, "`kv_tokens` must be at least 32"),
        ({"placements": ["luck"]}, "Invalid enum value 'luck'"),
        ({"placements": ["random"], "target": {"url": "http://127.0.0.1:9"}}, "`placements` needs `backends`"),
        ({"tenants": {"a": {"weight": 0}}}, "`weight` must be above 0"),
    ],
)
def test_what_cannot_work_is_refused(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        scenario(**parts)

    assert problem in str(refused.value)


def test_the_c_mock_follows_no_script() -> None:
    cheap = {"mock": {"kind": "c", "first_token_s": 0, "tokens_per_second": 100}}

    with pytest.raises(msgspec.ValidationError, match="the C mock of `mock` follows no script"):
        scenario(backends=cheap, faults=[{"do": "errors", "at": 1, "for_s": 1, "backend": "mock"}])
    assert scenario(backends=cheap, faults=[{"do": "kill", "at": 1, "backend": "mock"}]).faults[0].at == 1


def test_a_fault_hits_one_backend_or_its_group() -> None:
    groups = {"a": {"count": 2}, "b": {}}
    whole, one, single = ({"do": "kill", "at": 1, "backend": name} for name in ("a", "a-1", "b"))

    made = scenario(backends=groups, faults=[whole, one, single])

    assert list(made.instances()) == ["a-0", "a-1", "b"]
    assert [made.hit_by(fault) for fault in made.faults] == [["a-0", "a-1"], ["a-1"], ["b"]]


def test_how_long_a_healthy_answer_takes() -> None:
    """0.1 s, 3,000 tokens of prompt at 10,000 a second, and 20 tokens after the first at 50 a second."""
    mock = scenario(backends={"mock": {"first_token_s": 0.1, "prefill_tokens_per_second": 10_000, "tokens_per_second": 50}}).backends[
        "mock"
    ]
    quick = scenario(backends={"mock": {"first_token_s": 0.1, "tokens_per_second": 0}}).backends["mock"]

    assert (mock.first_s(3_000), mock.whole_s(3_000, 21)) == (pytest.approx(0.4), pytest.approx(0.8))
    assert (quick.first_s(3_000), quick.whole_s(3_000, 21)) == (0.1, 0.1)


def test_a_target_has_its_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    made = scenario(target={"url": "http://127.0.0.1:9", "key_env": "LOAD_TEST_KEY"})

    assert made.target is not None
    monkeypatch.delenv("LOAD_TEST_KEY", raising=False)
    with pytest.raises(ScenarioError, match="LOAD_TEST_KEY is not set"):
        made.target.key()
    monkeypatch.setenv("LOAD_TEST_KEY", "sk-1")
    assert made.target.key() == "sk-1"


def test_bounds() -> None:
    bounds = scenario(expect={"failed": 0, "goodput_share": {"min": 0.5}, "gap_p99_ms": {"min": 1, "max": 2}}).bounds()

    assert [bounds["failed"].keeps(value) for value in (0, 1, None)] == [True, False, False]
    assert [bounds["goodput_share"].keeps(value) for value in (0.5, 0.4, None)] == [True, False, False]
    assert [bounds["gap_p99_ms"].keeps(value) for value in (0.9, 1, 2, 2.1)] == [False, True, True, False]
    assert Bound().keeps(None) is False


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="No such file"):
        read_scenario(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("name: [")
    with pytest.raises(ScenarioError, match=r"bad\.yaml"):
        read_scenario(tmp_path / "bad.yaml")
