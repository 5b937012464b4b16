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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gateway.bench import cli, decoding
from gateway.bench.ctools import BenchError
from gateway.bench.decoding import BARS, Folders
from policies.bench import recordings
from policies.bench.decoding import QUICK
from policies.bench.scoring import Target
from policies.bench.tasks import FAMILIES

PROFILES, SETS = ("mid", "easy", "weak", "scattered", "maths"), ("humaneval", "game24_cot", "game24_direct")
RAW = {
    "vote.csv": "profile,question,samples,rounds,tokens,correct,full_tokens,full_correct",
    "price.csv": "profile,question,tokens,correct,uniform_tokens,uniform_correct",
    "verifier.csv": "set,question,calls,solved,solvable",
    "passes.csv": "set,question,samples,passes",
    "optscale.csv": "family,target,question,samples,reached,reachable",
    "joint.csv": "world,policy,way,order,regret_500,regret,best_500,best",
    "optscale_normal.csv": "family,target,question,samples,reached,reachable",
    "replayed.csv": "way,family,question,right,calls,prompt,tokens,usd",
}
TARGETS = {"beta": (0.9, 0.95), "normal": (0.9, 0.9), "bimodal": (0.9, 0.95), "rare": (0.9, 0.95)}
TINY = dataclasses.replace(QUICK, questions=30, scored=60, calibration=40, orders=3, joint_requests=30)


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
    assert set(report["data"]) == {"passes.csv", "recordings.jsonl.gz"}
    assert set(report["tables"]["95 % interval"]) == set(report["figures"])


def test_the_worst_and_the_mean_of_profiles_and_targets(report: dict[str, Any]) -> None:
    figures = report["figures"]
    losses, rounds = ([figures[f"vote_{figure}_{name}"] for name in PROFILES] for figure in ("loss", "rounds"))
    assert figures["vote_loss_max"] == max(losses)
    assert figures["vote_loss_mean"] == pytest.approx(math.fsum(losses) / 5)
    assert figures["vote_rounds"] == pytest.approx(math.fsum(rounds) / 5)
    names = {f"{family}_{level}": wanted for family, both in TARGETS.items() for level, wanted in zip((85, 95), both, strict=True)}
    assert figures["optscale_samples_ratio"] == max(figures[f"optscale_samples_{name}"] for name in names)
    reached = {name: figures[f"optscale_confidence_{name}"] for name in names}
    gaps = [max(0.0, wanted - 0.01 - reached[name], reached[name] - wanted - 0.09) for name, wanted in names.items()]
    assert figures["optscale_worst_gap"] == pytest.approx(max(gaps), abs=1e-12)


def test_a_gap_is_the_distance_from_what_a_confidence_may_be() -> None:
    found = Target("beta", 0.85, 0.9).gap([0.8, 0.89, 0.93, 0.99, 1.0])
    assert found.tolist() == pytest.approx([0.09, 0.0, 0.0, 0.0, 0.01])


def test_references_stand_beside_the_figures(report: dict[str, Any]) -> None:
    for name in PROFILES:
        voting = report["tables"][f"voting, {name}: rule"]
        assert {"Beta 0.88, 4 then 2", "ESC, windows of 4", "price 0.005, by 4", "fixed 1", "fixed 10", "fixed 20"} <= set(voting)
        assert voting["fixed 20"]["loss, points"] == voting["fixed 20"]["uniform"] == 0.0
        assert voting["fixed 20"]["tokens"] == 1.0
        assert voting["Beta 0.88, 4 then 2"]["right"] == pytest.approx(
            voting["fixed 20"]["right"] - report["figures"][f"vote_loss_{name}"] / 100
        )
    scores = report["tables"]["scores, beta_85: rule"]
    assert {"normal fitted to 3 scores", "true chance, first good score", "equally many for every question", "64 samples"} <= set(scores)
    assert scores["64 samples"]["samples"] == 64.0
    assert set(report["tables"]["pass@k, without bias"]) == {*PROFILES, *SETS}


def test_one_efficiency_does_for_every_number_of_answers(report: dict[str, Any], folder: Path) -> None:
    """What four answers gain, of what they would gain at most where the second, third and fourth pass with p/2, p/3 and p/4."""
    found = report["tables"]["efficiency of who chooses, answers"]
    passes = [int(row["passes"]) for row in table(folder / "raw" / "passes.csv") if row["set"] == "humaneval"]
    one = math.fsum(passes) / 100 / len(passes)
    four = math.fsum(1 - math.comb(100 - each, 4) / math.comb(100, 4) for each in passes) / len(passes)
    most = (1 - one) * (1 - (1 - one / 2) * (1 - one / 3) * (1 - one / 4))
    assert found["humaneval, check"]["4"] == pytest.approx((four - one) / most)
    assert set(found) == {*(f"{name}, check" for name in (*PROFILES, *SETS)), *(f"{name}, vote" for name in PROFILES)}
    for name in ("humaneval", "game24_direct"):
        row = found[f"{name}, check"].values()
        assert max(row) - min(row) < 0.1


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
    assert {file.name: file.read_text().partition("\n")[0].strip() for file in raw.iterdir()} == RAW
    votes, prices = ([row for row in table(raw / name) if row["profile"] == "weak"] for name in ("vote.csv", "price.csv"))
    assert [row["question"] for row in votes] == [f"1:{number}" for number in range(200)]
    assert 100 * (total(votes, "full_correct") - total(votes, "correct")) / 200 == pytest.approx(figures["vote_loss_weak"])
    assert total(votes, "tokens") / total(votes, "full_tokens") == pytest.approx(figures["vote_tokens_weak"])
    assert total(votes, "rounds") / 200 == pytest.approx(figures["vote_rounds_weak"])
    assert 100 * (total(prices, "correct") - total(prices, "uniform_correct")) / 200 == pytest.approx(figures["price_gain_weak"])
    assert total(prices, "tokens") <= total(prices, "uniform_tokens")


def test_calls_can_be_computed_again_from_the_files(report: dict[str, Any], folder: Path) -> None:
    for name, problems in zip(SETS, (164, 100, 100), strict=True):
        calls, counts = ([row for row in table(folder / "raw" / file) if row["set"] == name] for file in ("verifier.csv", "passes.csv"))
        assert len(calls) == problems
        assert total(calls, "calls") / total(counts, "samples") == pytest.approx(report["figures"][f"verifier_calls_{name}"])
        assert 0.95 <= total(calls, "solved") / total(calls, "solvable") < 0.96
        assert [row["solvable"] for row in calls] == [str(int(row["passes"] != "0")) for row in counts]


def test_confidences_can_be_computed_again_from_the_files(report: dict[str, Any], folder: Path) -> None:
    ours, theirs = (list(table(folder / "raw" / name)) for name in ("optscale.csv", "optscale_normal.csv"))
    assert {(row["family"], float(row["target"])) for row in ours} == {(family, each) for family, both in TARGETS.items() for each in both}
    for family in TARGETS:
        for level in ("0.85", "0.95"):
            name = f"{family}_{level[2:]}"
            kept, others = ([row for row in rows if within(row, family, level)] for rows in (ours, theirs))
            assert total(kept, "reached") / len(kept) == pytest.approx(report["figures"][f"optscale_confidence_{name}"])
            assert total(kept, "samples") / total(others, "samples") == pytest.approx(report["figures"][f"optscale_samples_{name}"])


def test_what_joint_plans_save_can_be_computed_again_from_the_file(report: dict[str, Any], folder: Path) -> None:
    rows = list(table(folder / "raw" / "joint.csv"))
    assert len(rows) == 2 * 2 * 3 * 2  # worlds, policies, ways, orders
    for world in ("check", "vote"):
        for policy in ("linucb", "thompson"):
            of = {
                way: [row for row in rows if (row["world"], row["policy"], row["way"]) == (world, policy, way)]
                for way in ("curves", "apart")
            }
            saved = 1 - total(of["curves"], "regret") / total(of["apart"], "regret")
            assert report["figures"][f"joint_saved_{world}_{policy}"] == pytest.approx(saved)
            told = report["tables"]["joint plans: regret of a request"][f"{world}, {policy}, curves"]
            assert told["all"] == pytest.approx(total(of["curves"], "regret") / 2)
            assert told["of all"] == pytest.approx(total(of["curves"], "best") / 2)


def test_recorded_answers_can_be_counted_again(report: dict[str, Any], folder: Path) -> None:
    """One sample is as good as any other; of votes, what they cost is what all eight cost."""
    found = recordings.read()
    assert Counter((each.model, each.family) for each in found) == {(model, name): 320 for model in ("strong", "weak") for name in FAMILIES}
    assert recordings.FILE.stat().st_size < 1_000_000
    rows, shown = list(table(folder / "raw" / "replayed.csv")), report["tables"]["recorded answers, small models: way"]
    for way, row in shown.items():
        mine = [each for each in rows if each["way"] == way]
        assert len(mine) == 240
        assert row["right"] == pytest.approx(total(mine, "right") / 240)
        assert row["USD per million right"] == pytest.approx(1e6 * total(mine, "usd") / total(mine, "right"))
    strong = [each for each in found if each.model == "strong"]
    usd = sum(each.prompt * 0.02 + each.tokens * 0.06 for each in strong) / 1e6
    assert total((each for each in rows if each["way"] == "vote of 8"), "usd") == pytest.approx(usd)


def total(rows: Iterable[dict[str, str]], column: str) -> float:
    return math.fsum(float(row[column]) for row in rows)


def within(row: dict[str, str], family: str, level: str) -> bool:
    return row["family"] == family and row["question"].startswith(f"{level}:") and row["reachable"] == "1"


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
    names = [f"{name}_own" for name in ("vote_loss", "vote_tokens", "vote_rounds", "price_gain", "verifier_calls", "verifier_calls_all")]
    had = {name for name, value in made.figures.items() if value is not None}
    assert had == {*names, "vote_loss_max", "vote_loss_mean", "vote_rounds"}
    assert made.figures["vote_loss_max"] == made.figures["vote_loss_mean"] == made.figures["vote_loss_own"]
    assert set(made.tables["reasons"]) == set(made.figures) - had == set(BARS) - had
    assert made.missed() == []
    assert made.data == {"own.jsonl.gz": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert made.tables["pass@k, without bias"]["own"]["pass@5"] is not None
    assert made.tables["pass@k, without bias"]["own"]["pass@10"] is None
    assert [row["question"] for row in table(tmp_path / "raw" / "vote.csv")] == [f"q{number}" for number in range(40)]
    assert (tmp_path / "out" / "decoding_own.svg").exists()
    assert "own" in made.text()


def own_sets(file: Path, *sets: str) -> Path:
    """A CSV of 12 questions for each set; of `mute` nothing can be read."""
    columns = ("set", "question", "sample", "answer", "correct", "tokens")
    with file.open("w", newline="") as sink:
        writer = csv.DictWriter(sink, columns)
        writer.writeheader()
        for name in sets:
            answer = {"answer": ""} if name == "mute" else {}
            writer.writerows({"set": name, **row, "correct": int(row["correct"]), **answer} for row in samples_of(12, 4, 8))
    return file


def test_each_set_of_ones_own_samples_has_its_figures(tmp_path: Path) -> None:
    file = own_sets(tmp_path / "own.csv", "mid", "../a set", "", "mute")
    made = decoding.run(True, lambda _: None, Folders(samples=file, raw=tmp_path / "raw", out=tmp_path / "out"), TINY)
    losses = [made.figures[f"vote_loss_{name}"] or 0.0 for name in ("mid", "../a set", "own")]
    assert made.figures["vote_loss_mean"] == pytest.approx(math.fsum(losses) / 3)
    assert made.figures["vote_loss_mute"] is None
    assert "empty everywhere" in made.tables["reasons"]["vote_loss_mute"]
    assert made.figures["verifier_calls_mute"] == made.figures["verifier_calls_mid"]
    assert Counter(row["profile"] for row in table(tmp_path / "raw" / "vote.csv")) == {"mid": 12, "../a set": 12, "own": 12}
    assert Counter(row["set"] for row in table(tmp_path / "raw" / "verifier.csv")) == {"mid": 12, "../a set": 12, "own": 12, "mute": 12}
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_a_set_cannot_have_the_name_of_a_figure_over_all_of_them(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="cannot be called `max`"):
        decoding.run(True, lambda _: None, Folders(samples=own_sets(tmp_path / "own.csv", "mid", "max")), TINY)


def test_ones_own_samples_that_cannot_vote(tmp_path: Path) -> None:
    lines = ["question,sample,answer,correct,tokens", *(f"{q},{s},,{int(s > q)},0" for q in range(5) for s in range(4))]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    made = decoding.run(True, lambda _: None, Folders(samples=tmp_path / "own.csv", raw=tmp_path / "raw"), TINY)
    for name in ("vote_loss_own", "vote_loss_max", "vote_loss_mean", "vote_rounds"):
        assert made.figures[name] is None
        assert "empty everywhere" in made.tables["reasons"][name]
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
