"""`trilemma replay` on a log: what the other policy would have been worth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gateway.proof.replay import main
from policies.offpolicy.log import Option, Row, write_log
from policies.routing import thompson
from policies.states import arrays, packed
from policies.values.outcome import Observation
from policies.values.plan import Plan

CONFIG = """
version: 1
backends:
  one: {url: "http://127.0.0.1:9", models: {m: m}}
models:
  m: {}
virtual_models:
  auto:
    policy: now
    plans: {small: {model: m}, large: {model: m}}
policies:
  now: {type: fixed, params: {plan: small}, floor: 0.5}
  large: {type: fixed, params: {plan: large}}
  learning: {type: thompson}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "trilemma.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """600 decisions by (0.75, 0.25); small is right in 0.4 of all cases, large in 0.8."""
    generator = np.random.default_rng(0)
    options = (Option("small", 0.75, 0.001, 1.0), Option("large", 0.25, 0.01, 2.0))
    rows = []
    for i in range(600):
        large = bool(generator.random() < 0.25)
        quality = float(generator.random() < (0.8 if large else 0.4))
        plan = options[large].plan
        cost = options[large].cost
        rows.append(Row(f"d{i:03}", plan, options[large].probability, options, quality=quality, cost=cost, latency=1.0, created=1e9 + i))
    file = tmp_path / "log.jsonl"
    write_log(file, rows)
    return file


def argv(config: Path, log: Path, *more: str) -> list[str]:
    return ["--config", str(config), "--log", str(log), *more]


def test_the_worth_of_another_policy_is_told(config: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv(config, log, "--policy", "large", "--json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True and (found["rows"], found["evaluated"]) == (600, 600)
    best = found["quality"]["target"][0]
    assert best["method"] == "dr" and best["low"] < 0.8 < best["high"]
    assert found["quality"]["gain"]["low"] < 0.3 < found["quality"]["gain"]["high"]
    assert found["quality"]["gain"]["low"] > 0
    assert found["cost"]["target"][0]["value"] == pytest.approx(0.01)
    assert found["shares"]["large"][0] == 1.0


def test_it_is_a_table_for_people(config: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv(config, log)) == 0
    out = capsys.readouterr().out
    assert out.startswith("policy now: 600 of 600 rows\n")
    lines = [line.split()[0] for line in out.splitlines() if line]
    for name in ("DR", "direct", "IPS", "SNIPS", "SWITCH", "gain", "small", "large"):
        assert name in lines
    assert "no valid interval" in out


def test_a_snapshot_stays_as_it_is_and_without_one_the_policy_learns(
    config: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = (Plan("small", "m"), Plan("large", "m"))
    policy = thompson.Thompson(thompson.Params(), plans)
    told = [Observation(f"o{i}", "small", {}, 1.0, at=1e9) for i in range(500)]
    told += [Observation(f"p{i}", "large", {}, 0.0, at=1e9) for i in range(500)]
    snapshot = tmp_path / "state.npz"
    snapshot.write_bytes(packed(arrays(policy.fold(policy.empty(), told))))
    shares = []
    for more in (["--state", str(snapshot)], []):
        assert main(argv(config, log, "--policy", "learning", "--json", *more)) == 0
        shares.append(json.loads(capsys.readouterr().out)["shares"]["small"][0])
    # The snapshot was taught that small is always right; the log says otherwise.
    assert shares[0] > 0.99 and shares[1] < 0.4


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        (["--policy", "nobody"], 2, "`nobody`"),
        (["--model", "nobody"], 2, "no virtual model `nobody`"),
        (["--policy", "learning", "--state", "missing.npz"], 2, "missing.npz cannot be read"),
    ],
)
def test_what_is_not_there_is_said(
    config: Path, log: Path, capsys: pytest.CaptureFixture[str], more: list[str], status: int, message: str
) -> None:
    assert main(argv(config, log, *more)) == status
    assert message in capsys.readouterr().err


def test_a_log_that_cannot_be_used_is_said(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, empty = tmp_path / "bad.jsonl", tmp_path / "empty.jsonl"
    bad.write_text("{}\n")
    empty.write_text("")
    assert main(argv(config, bad)) == 1
    assert "bad.jsonl:1: " in capsys.readouterr().err
    assert main(argv(config, empty)) == 1
    assert "the log is empty" in capsys.readouterr().err
    assert main(argv(config, tmp_path / "none.jsonl")) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_a_snapshot_of_something_else_is_refused(config: Path, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = tmp_path / "state.npz"
    snapshot.write_bytes(packed({"other": np.zeros(3)}))
    assert main(argv(config, log, "--policy", "learning", "--state", str(snapshot))) == 1
    assert "the snapshot holds no" in capsys.readouterr().err
    snapshot.write_bytes(b"no archive")
    assert main(argv(config, log, "--policy", "learning", "--state", str(snapshot))) == 1
