"""The decoding suite, end to end in small: its shape, its files, samples of one's own. Only exact figures are judged here."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gateway.bench import cli, decoding
from gateway.bench.decoding import BARS, Folders
from policies.bench.decoding import QUICK

PROFILES, SETS = ("mid", "easy", "weak", "scattered", "maths"), ("humaneval", "game24_cot", "game24_direct")
RAW = {*(f"voting_{name}.csv" for name in PROFILES), "verifier.csv", "optscale.csv"}
TINY = dataclasses.replace(QUICK, questions=30, scored=60, calibration=40, orders=3)


def table(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="") as source:
        yield from csv.DictReader(source)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decoding")


@pytest.fixture(scope="module")
def report(folder: Path) -> dict[str, Any]:
    """One quick run by the command, read back from the file that it leaves."""
    page = folder / "page.md"
    page.write_text("before\n\n<!-- decoding -->\n<!-- /decoding -->\n\nafter\n")
    options = ["--raw", str(folder / "raw"), "--out", str(folder / "out"), "--into", str(page)]
    assert cli.main(["decoding", "--quick", "--json", *options]) == 0
    read: dict[str, Any] = json.loads((folder / "out" / "decoding.json").read_text())
    return read


def test_every_bar_has_its_figure_and_every_figure_is_a_number(report: dict[str, Any]) -> None:
    assert report["suite"] == "decoding"
    assert set(report["figures"]) > set(BARS)
    assert None not in report["figures"].values()
    assert report["tables"]["reasons"] == {}
    assert set(report["data"]) == {"passes.csv"}
    assert set(report["tables"]["95 % interval"]) == set(report["figures"])


def test_references_stand_beside_the_figures(report: dict[str, Any]) -> None:
    for name in PROFILES:
        voting = report["tables"][f"voting, {name}: rule"]
        assert {"Beta 0.88, 4 then 2", "ESC, windows of 4", "price 0.005, by 4", "fixed 1", "fixed 10", "fixed 20"} <= set(voting)
        assert voting["fixed 20"]["loss, points"] == voting["fixed 20"]["uniform"] == 0.0
        assert voting["fixed 20"]["tokens"] == 1.0
        assert voting["Beta 0.88, 4 then 2"]["right"] == pytest.approx(
            voting["fixed 20"]["right"] - report["figures"][f"voting_loss_{name}"] / 100
        )
    scores = report["tables"]["scores, beta_85: rule"]
    assert {"normal fitted to 3 scores", "true chance, first good score", "equally many for every question", "64 samples"} <= set(scores)
    assert scores["64 samples"]["samples"] == 64.0
    assert set(report["tables"]["pass@k, without bias"]) == {*PROFILES, *SETS}


def test_an_exact_verifier_on_the_published_counts(report: dict[str, Any]) -> None:
    """Exact expectations: the same whatever the sizes of a run."""
    figures = report["figures"]
    assert [round(figures[f"verifier_calls_{name}"], 3) for name in SETS] == [0.243, 0.535, 0.621]
    assert [round(figures[f"verifier_calls_all_{name}"], 3) for name in SETS] == [0.357, 0.629, 0.743]
    for name in SETS:
        frontier = list(report["tables"][f"verifier, {name}: stop"].values())
        assert [row["solved"] for row in frontier] == sorted(row["solved"] for row in frontier)
        assert [row["calls"] for row in frontier] == sorted(row["calls"] for row in frontier)
        assert all(row["oracle needs"] <= row["calls"] <= row["needs"] and row["fixed"] <= row["solved"] for row in frontier)


def test_the_figures_can_be_computed_again_from_the_files(report: dict[str, Any], folder: Path) -> None:
    raw, figures = folder / "raw", report["figures"]
    assert {file.name for file in raw.iterdir()} == RAW
    rows = list(table(raw / "voting_weak.csv"))
    assert len(rows) == 200
    total = {name: math.fsum(float(row[name]) for row in rows) for name in rows[0]}
    assert 100 * (total["full_right"] - total["right"]) / 200 == pytest.approx(figures["voting_loss_weak"])
    assert total["tokens"] / total["full_tokens"] == pytest.approx(figures["voting_tokens_weak"])
    assert total["rounds"] / 200 == pytest.approx(figures["voting_rounds_weak"])
    assert 100 * (total["priced_3_right"] - total["uniform_3_right"]) / 200 == pytest.approx(figures["equal_tokens_gain_weak"])
    scored = [row for row in table(raw / "optscale.csv") if row["target"] == "rare_85" and row["within"] == "1"]
    assert sum(int(row["reached"]) for row in scored) / len(scored) == pytest.approx(figures["optscale_confidence_rare_85"])
    samples = [sum(int(row[column]) for row in scored) for column in ("samples", "optscale_samples")]
    assert samples[0] / samples[1] == pytest.approx(figures["optscale_samples_rare_85"])
    assert Counter(row["set"] for row in table(raw / "verifier.csv")) == {"humaneval": 164, "game24_cot": 100, "game24_direct": 100}


def test_the_frontiers_are_drawn_and_the_page_is_filled(report: dict[str, Any], folder: Path) -> None:
    for name in SETS:
        drawn = ElementTree.fromstring((folder / "out" / f"decoding_{name}.svg").read_text())
        assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == 3
    page = (folder / "page.md").read_text()
    assert page.startswith("before\n\n<!-- decoding -->\n\n| figure | value | bar |")
    assert "| voting, mid: rule | right |" in page


def test_a_run_can_be_repeated() -> None:
    one, two = (decoding.run(True, lambda _: None, Folders(), TINY) for _ in range(2))
    assert one.figures == two.figures


def samples_of(questions: int, least: int, most: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(3)
    for question in range(questions):
        chance = rng.random()
        for sample in range(rng.randint(least, most)):
            right = rng.random() < chance
            answer = "right" if right else rng.choice(["a", "b", "c", ""])
            yield {"question": f"q{question}", "sample": sample, "answer": answer, "correct": right, "tokens": rng.randint(20, 60)}


def test_ones_own_samples(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in samples_of(40, 6, 12)).encode()))
    made = decoding.run(True, lambda _: None, Folders(samples=file, raw=tmp_path / "raw", out=tmp_path / "out"), TINY)
    names = ("voting_loss", "voting_tokens", "voting_rounds", "equal_tokens_gain", "verifier_calls", "verifier_calls_all")
    assert list(made.figures) == [f"{name}_own" for name in names]
    assert None not in made.figures.values()
    assert made.missed() == []
    assert made.data == {"own.jsonl.gz": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert made.tables["pass@k, without bias"]["own"]["pass@5"] is not None
    assert made.tables["pass@k, without bias"]["own"]["pass@10"] is None
    assert [row["question"] for row in table(tmp_path / "raw" / "voting_own.csv")] == [f"q{number}" for number in range(40)]
    assert (tmp_path / "out" / "decoding_own.svg").exists()
    assert "own" in made.text()


def test_ones_own_samples_that_cannot_vote(tmp_path: Path) -> None:
    lines = ["question,sample,answer,correct,tokens", *(f"{q},{s},,{int(s > q)},0" for q in range(5) for s in range(4))]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    made = decoding.run(True, lambda _: None, Folders(samples=tmp_path / "own.csv", raw=tmp_path / "raw"), TINY)
    assert made.figures["voting_loss_own"] is None
    assert "empty everywhere" in made.tables["reasons"]["voting_loss_own"]
    assert made.figures["verifier_calls_all_own"] == pytest.approx((5 / 4 + 5 / 3 + 5 / 2 + 4 + 4) / 20)  # (n + 1) / (c + 1) calls each


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question,sample,answer\n1,1,a\n", "first line must name"),
        ("question,sample,answer,correct,tokens\n1,1,a,maybe,3\n", "`correct` is 'maybe'"),
        ("question,sample,answer,correct,tokens\n1,1,a,1,-3\n", "`tokens` is '-3'"),
        ("question,sample,answer,correct,tokens\n1,1,a,1,3\n1,1,b,1,3\n", "two samples `1`"),
        ("question,sample,answer,correct,tokens\n1,1,a\n", "`correct` is missing"),
        ("question,sample,answer,correct,tokens\n", "no samples"),
        ('{"question": 1}\n', "`sample` is missing"),
        ('{"question": 1\n', "own.csv:1"),
        (None, "No such file"),
    ],
)
def test_samples_that_cannot_be_used_are_said(text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "own.csv"
    if text is not None:
        file.write_text(text)
    assert cli.main(["decoding", "--json", "--samples", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
