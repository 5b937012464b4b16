"""`trilemma power`: requests that a promotion needs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gateway.proof.power import main
from policies.offpolicy.log import Option, Row, write_log


def test_gains_are_told_with_their_requests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--gain", "0.02", "0.05", "--floor", "0.1", "--plans", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["variance"] == pytest.approx(0.21 * 39)
    assert found["scale"] == pytest.approx(40)
    assert [need["gain"] for need in found["needs"]] == [0.02, 0.05]
    # (1.96 + 0.8416)^2 * 8.19 / gain^2
    assert [need["fixed"] for need in found["needs"]] == pytest.approx([160_706, 25_713], abs=3)
    assert all(need["anytime"] > need["fixed"] for need in found["needs"])


def test_it_is_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--share", "0.5", "--gain", "0.02"]) == 0
    out = capsys.readouterr().out
    assert "variance of one request's part: 0.21" in out and "4,121" in out


def test_the_variance_may_come_from_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generator = np.random.default_rng(0)
    options = (Option("small", 0.5), Option("large", 0.5))
    rows = [
        Row(f"d{i:04}", options[i % 2].plan, 0.5, options, quality=float(generator.random() < 0.5), created=float(i)) for i in range(4000)
    ]
    log = tmp_path / "log.jsonl"
    write_log(log, rows)
    config = tmp_path / "trilemma.yaml"
    config.write_text(
        """
version: 1
backends:
  one: {url: "http://127.0.0.1:9", models: {m: m}}
models:
  m: {}
virtual_models:
  auto: {policy: fixed, plans: {small: {model: m}, large: {model: m}}}
policies:
  large: {type: fixed, params: {plan: large}}
"""
    )
    argv = ["--gain", "0.05", "--log", str(log), "--config", str(config), "--policy", "large", "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    # w - 1 is 1 or -1, and a label's variance is 1/4.
    assert found["variance"] == pytest.approx(0.25, rel=0.02) and found["assumed"] is None
    assert main([*argv[:4], "--json"]) == 2
    assert "needs --config" in json.loads(capsys.readouterr().out)["error"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [(["--floor", "0"], "without exploration"), (["--gain", "0"], "gain must be above 0"), (["--plans", "1"], "at least 2 plans")],
)
def test_what_cannot_be_shown_is_said(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert message in capsys.readouterr().err
