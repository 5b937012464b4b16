"""The routing suite, end to end in small: its shape, its files, its rule of no overlap. No figure is judged here."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gateway.bench import cli, routing
from gateway.bench.routing import BARS, Folders
from policies.bench import data, suite
from policies.bench.vectors import Library

FIGURES = {
    "overlap", "mmlu_zero_apgr", "gsm8k_zero_apgr", "mmlu_1500_apgr", "mmlu_1500_apgr_min", "gsm8k_400_apgr", "static_apgr_loss",
    "online_cold", "online_warm", "online_category", "online_true_category", "online_worst_window", "swap_reward_lost", "false_resets",
    "ope_coverage_2000", "ope_coverage_10000", "ope_half_width_20000",
    "decide_cpu_us_linucb_8", "decide_cpu_us_thompson_8", "decide_cpu_us_rules_8", "decide_cpu_us_neighbors_8", "decide_cpu_us_weighted_8",
    "encode_cpu_us_static_200", "encode_cpu_us_hashed_200", "state_mb_max",
}  # fmt: skip
RAW = {
    "mmlu_zero.csv", "gsm8k_zero.csv", "mmlu_1500.csv", "gsm8k_400.csv", "ope.csv",
    "online_cold.csv", "online_warm.csv", "online_category.csv", "online_true_category.csv", "online_swap.csv",
}  # fmt: skip


def table(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="") as source:
        yield from csv.DictReader(source)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("routing")


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """One quick run by the command, read back from the file that it leaves."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(suite, "QUICK", dataclasses.replace(suite.QUICK, prompts=250, labels_mmlu=80, labels_gsm8k=80, seeds=1))
        status = cli.main(
            ["routing", "--quick", "--json", "--cache", str(folder / "cache"), "--raw", str(folder / "raw"), "--out", str(folder / "out")]
        )
    assert status == 0
    read: dict[str, Any] = json.loads((folder / "out" / "routing.json").read_text())
    return read


def test_every_figure_is_a_number_or_has_its_reason(report: dict[str, Any]) -> None:
    assert report["suite"] == "routing"
    assert set(report["figures"]) >= FIGURES | set(BARS)
    missing = {name for name, value in report["figures"].items() if value is None}
    assert missing == set(report["tables"]["reasons"])
    assert "static_apgr_loss" in missing  # MiniLM is left out of quick runs
    assert report["data"] == data.digests()


def test_nothing_that_is_scored_was_trained_on(report: dict[str, Any]) -> None:
    assert report["figures"]["overlap"] == 0
    assert set(report["tables"]["overlap_by_figure"]) >= {
        "mmlu_zero",
        "gsm8k_zero",
        "mmlu_1500",
        "gsm8k_400",
        "online_warm",
        "online_category",
    }
    assert set(report["tables"]["overlap_by_figure"].values()) == {0}


def test_references_stand_beside_the_figures(report: dict[str, Any]) -> None:
    mmlu = report["tables"]["mmlu_1500: router"]
    assert {"RouteLLM's best, as published", "length", "random", "oracle", "category prior (told)", "policy linucb, static"} <= set(mmlu)
    assert mmlu["RouteLLM's best, as published"]["APGR"] == 0.603
    assert {"best fixed", "best per category", "oracle"} <= set(report["tables"]["on line: not to be had"])
    assert {"delayed", "sparse", "linucb", "neighbors", "best_single", "random"} <= set(report["tables"]["on line: policy"])
    assert any("compared on these very sets" in note for note in report["tables"]["notes"])


def test_the_figures_can_be_computed_again_from_the_files(report: dict[str, Any], folder: Path) -> None:
    raw = folder / "raw"
    assert {file.name for file in raw.iterdir()} >= RAW
    scored = list(table(raw / "mmlu_zero.csv"))
    assert list(scored[0]) == ["seed", "id", "score", "weak", "strong"]
    scored.sort(key=lambda row: -float(row["score"]))  # stable
    gains = [float(row["strong"]) - float(row["weak"]) for row in scored]
    total, area, before = sum(gains), 0.0, 0.0
    for gain in gains:
        area += (before + gain / 2) / total / len(gains)
        before += gain
    assert area == pytest.approx(report["figures"]["mmlu_zero_apgr"])
    served = list(table(raw / "online_cold.csv"))
    assert list(served[0]) == ["order", "step", "id", "arm", "propensity", "reward"]
    by_order: dict[str, list[float]] = {}
    for row in served:
        by_order.setdefault(row["order"], []).append(float(row["reward"]))
    means = [math.fsum(rewards) / len(rewards) for rewards in by_order.values()]
    assert sum(means) / len(means) == pytest.approx(report["figures"]["online_cold"])
    assert {row["arm"] for row in served} <= set(data.ONLINE_ARMS)
    logs = list(table(raw / "ope.csv"))
    assert list(logs[0]) == ["cell", "n", "replication", "estimate", "low", "high", "ess", "truth"]
    assert all(math.isnan(float(row["low"])) for row in logs if float(row["ess"]) < 15)


def test_plots_are_drawn(report: dict[str, Any], folder: Path) -> None:
    for name in ("routing_online.svg", "routing_apgr.svg"):
        ElementTree.fromstring((folder / "out" / name).read_text())


TINY = dataclasses.replace(
    suite.QUICK, replications=2, outcomes=1_000, decisions=10, encodes=2, few=1, orders=1, warm=20, topic_labels=30, embeddings=()
)


def test_ones_own_matrix_with_its_costs(tmp_path: Path) -> None:
    models = ("small", "medium", "large")
    lines = ["id,prompt,category," + ",".join(models)]
    lines += [f"q{row},Question {row},{'ab'[row % 2]},{row % 2},{int(row % 3 > 0)},{'' if row == 7 else 1}" for row in range(120)]
    (tmp_path / "own.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (tmp_path / "costs.csv").write_text("model,cost\nsmall,0.001\nmedium,0.002\nlarge,0.004\n")
    folders = Folders(matrix=tmp_path / "own.csv.gz", costs=tmp_path / "costs.csv", cache=tmp_path, raw=tmp_path / "raw")
    made = routing.run(True, lambda _: None, folders, TINY)
    assert made.figures["mmlu_zero_apgr"] is None
    assert "one's own" in made.tables["reasons"]["mmlu_zero_apgr"]
    assert made.figures["overlap"] == 0
    assert made.tables["on line: not to be had"]["best fixed"] == {"mean reward": 1.0}
    assert 0.001 <= made.tables["on line: policy"]["cold"]["cost"] <= 0.004
    assert set(made.data) == {"own.csv.gz", "costs.csv"}
    assert any(note.startswith("1 prompts are left out") for note in made.tables["notes"])
    assert "online_cold" not in made.tables["bars"]
    assert {row["id"] for row in table(tmp_path / "raw" / "online_random.csv")} <= {f"q{row}" for row in range(120) if row != 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [("id,prompt\n1,a\n", "first line"), ("id,prompt,category,a,b\n1,x,,0,1\n2,y,,1,1\n", "needs 40 prompts"), (None, "No such file")],
)
def test_a_matrix_that_cannot_be_used_is_said(text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.csv"
    if text is not None:
        file.write_text(text)
    assert cli.main(["routing", "--quick", "--json", "--cache", str(tmp_path), "--matrix", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_vectors_are_made_once_and_read_back(tmp_path: Path) -> None:
    said: list[str] = []
    library = Library(tmp_path, said.append)
    prompts = ["What is two and two?", "Write a function that sorts a list.", ""]
    first = library.embeddings("hashed", prompts)
    assert len(said) == 1
    assert library.embeddings("hashed", prompts).tolist() == first.tolist()
    assert len(said) == 1
    library.embeddings("hashed", prompts[:2])
    assert len(said) == 2
    assert [pytest.approx(1.0, abs=1e-5), pytest.approx(1.0, abs=1e-5), 0.0] == [float((row**2).sum()) for row in first]
