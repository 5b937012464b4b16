"""Strategies over an endpoint, end to end: a real gateway in front of the mock backend. What it says is never right."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from gateway.bench import cli
from gateway.bench.engines import CONFIGURED, config_of, endpoint
from gateway.bench.servers import Server
from policies.bench import recordings
from policies.bench.tasks import FAMILIES

# One model, so there is nothing to escalate to.
WAYS = {"single", "greedy", *(name for name in CONFIGURED if not name.startswith("cascade"))}


def test_any_endpoint_is_asked_by_every_strategy(mock: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--base-url", f"http://127.0.0.1:{mock.port}/v1", "--items", "1"]
    assert cli.main(["decoding", *asked, "--json", "--raw", str(tmp_path)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["suite"] == "engines"
    assert set(report["tables"]["way"]) == WAYS
    assert {way: report["figures"][f"right_{way}"] for way in WAYS} == dict.fromkeys(WAYS, 0.0)
    assert all(report["figures"][f"usd_per_million_right_{way}"] is None for way in WAYS)
    assert report["tables"]["way"]["single"]["calls"] == 1
    assert report["tables"]["way"]["best"]["calls"] == 4
    assert "bars" not in report["tables"]
    with (tmp_path / "attempts.csv").open(newline="") as source:
        rows = list(csv.DictReader(source))
    assert [row["family"] for row in rows if row["way"] == "single"] == list(FAMILIES)


def test_samples_are_recorded(mock: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "recordings.jsonl.gz"
    assert cli.main(["decoding", "--base-url", f"http://127.0.0.1:{mock.port}", "--items", "1", "--json", "--record", str(file)]) == 0
    assert set(json.loads(capsys.readouterr().out)["tables"]["way"]) == {"single", "greedy"}
    found = recordings.read(file)
    assert [(each.model, each.family) for each in found] == [("strong", family) for family in FAMILIES for _ in range(8)]


def test_a_key_comes_of_the_environment_and_stays_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANY_KEY", "sk-very-secret")
    config = config_of(endpoint("https://models.example.com/v1/", "small", "ANY_KEY"), tmp_path, 1)
    assert config["backends"] == {
        "strong": {"url": "https://models.example.com", "engine": "openai", "models": {"strong": "small"}, "key": "${ANY_KEY}"}
    }
    assert "sk-very-secret" not in json.dumps(config)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engines", "--base-url", "http://127.0.0.1:1"], "leave out one"),
        (["--engines", "--samples", "file.csv"], "leave out --engines"),
        (["--base-url", "127.0.0.1:8000"], "must begin with http"),
        (["--base-url", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH_VARIABLE"], "no such environment variable"),
        (["--base-url", "http://127.0.0.1:1"], "name one with --model"),
    ],
)
def test_what_cannot_be_asked_is_said(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["decoding", *options]) == 2
    assert said in capsys.readouterr().err
