"""`trilemma simulate` on a matrix of the user's own."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from gateway.proof.simulate import main
from tests.support.vectors import Vectors


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """400 prompts: `large` is always right, `small` in half of all cases."""
    generator = np.random.default_rng(0)
    file = tmp_path / "matrix.csv"
    lines = [f"q{i},prompt {i},{'even' if i % 2 == 0 else 'odd'},{int(generator.random() < 0.5)},1" for i in range(400)]
    file.write_text("\n".join(["id,prompt,category,small,large", *lines]) + "\n")
    return file


def told(argv: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert main([*argv, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_learning_policy_comes_near_the_best_plan(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(["--matrix", str(matrix), "--type", "thompson", "--orders", "3"], capsys)
    assert found["ok"] is True and found["requests"] == 400 and found["orders"] == 3
    assert found["best_fixed"] == {"plan": "large", "reward": 1.0}
    assert found["oracle"] == 1.0
    reward = found["reward"]
    assert isinstance(reward, dict) and 0.9 < reward["lowest"] <= reward["mean"] <= reward["highest"] <= 1.0
    again = told(["--matrix", str(matrix), "--type", "thompson", "--orders", "3"], capsys)
    assert again == found


def test_a_price_moves_it_to_the_cheap_plan(matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    costs = tmp_path / "costs.csv"
    costs.write_text("model,cost,latency\nsmall,0.001,1\nlarge,0.1,2\n")
    argv = ["--matrix", str(matrix), "--costs", str(costs), "--type", "thompson", "--orders", "2"]
    free, dear = told(argv, capsys), told([*argv, "--price-cost", "50"], capsys)
    for found, least in ((free, 0.085), (dear, 0.0)):
        assert isinstance(found["cost"], float) and found["cost"] > least
    assert isinstance(dear["cost"], float) and dear["cost"] < 0.02


def test_every_request_is_written_down(matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "raw.csv"
    params = '{"weights": {"small": 3, "large": 1}}'
    found = told(
        ["--matrix", str(matrix), "--type", "weighted", "--params", params, "--orders", "2", "--requests", "100", "--raw", str(raw)], capsys
    )
    with raw.open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert [row["order"] for row in rows] == ["0"] * 100 + ["1"] * 100
    assert {(row["arm"], row["propensity"]) for row in rows} == {("small", "0.75"), ("large", "0.25")}
    reward = found["reward"]
    assert isinstance(reward, dict)
    assert np.mean([float(row["reward"]) for row in rows]) == pytest.approx(reward["mean"])


def test_a_policy_of_a_configuration_with_its_floor(matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "trilemma.yaml"
    backends = 'version: 1\nbackends:\n  one: {url: "http://127.0.0.1:9", models: {m: m}}\nmodels:\n  m: {}\n'
    config.write_text(f"{backends}policies:\n  mine:\n    type: fixed\n    params: {{plan: large}}\n    floor: 0.2\n")
    found = told(["--matrix", str(matrix), "--config", str(config), "--policy", "mine", "--orders", "5"], capsys)
    plans = found["plans"]
    assert isinstance(plans, dict) and plans["large"]["share"] == pytest.approx(0.9, abs=0.03)


def test_a_swap_is_told_of(matrix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--matrix", str(matrix), "--type", "fixed", "--params", '{"plan": "large"}', "--orders", "1", "--swap", "small,large"]
    lost = told(argv, capsys)["lost_after_swap"]
    # 200 requests at a loss of about 0.5.
    assert isinstance(lost, float) and 85 < lost < 115
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "reward lost after the swap" in out and "best fixed: large" in out


@pytest.mark.parametrize(
    ("more", "status", "message"),
    [
        ([], 2, "name a policy"),
        (["--type", "thompson", "--policy", "x"], 2, "name a policy"),
        (["--type", "nothing"], 2, "unknown policy type `nothing`"),
        (["--type", "fixed", "--params", '{"plan": "huge"}'], 2, "names `huge`"),
        (["--type", "fixed", "--baseline", "huge"], 2, "no column `huge`"),
        (["--type", "fixed", "--swap", "small,huge"], 2, "--swap must name two columns"),
        (["--type", "fixed", "--labelled", "0"], 2, "--labelled"),
        (["--type", "fixed", "--warm", "400"], 2, "leaves no prompt"),
        (["--type", "fixed", "--orders", "0"], 2, "at least 1"),
        (["--type", "fixed", "--costs", "missing.csv"], 2, "missing.csv cannot be read"),
    ],
)
def test_what_cannot_be_is_said(matrix: Path, capsys: pytest.CaptureFixture[str], more: list[str], status: int, message: str) -> None:
    assert main(["--matrix", str(matrix), *more]) == status
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


def test_a_bad_matrix_is_said_in_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("what\n")
    assert main(["--matrix", str(file), "--type", "fixed", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False and "first line must be" in found["error"]


def test_features_of_an_endpoint(matrix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Vectors({}, other=[1.0, 0.0]) as server:
        config = tmp_path / "trilemma.yaml"
        backends = 'version: 1\nbackends:\n  one: {url: "http://127.0.0.1:9", models: {m: m}}\n'
        emb = f"embeddings: {{emb: {{url: '{server.url}', model: mini, dimensions: 2}}}}\n"
        config.write_text(f'{backends}{emb}policies: {{mine: {{type: linucb, params: {{features: ["endpoint:emb"]}}}}}}\n')
        argv = ["--matrix", str(matrix), "--config", str(config), "--policy", "mine", "--orders", "1", "--requests", "20"]
        assert told(argv, capsys)["requests"] == 20
        assert sorted(text for body in server.asked for text in body["input"]) == sorted(f"prompt {i}" for i in range(400))

        server.status = 500
        assert main(argv) == 1
        assert "the embeddings endpoint `emb`: status 500" in capsys.readouterr().err
