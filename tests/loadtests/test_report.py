from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.load.report import Expectation, Report
from loadtests import report as module
from loadtests.report import main, put, table

MACHINE = {"cpu": "Abacus 2", "cpus": 2, "system": "Linux 6"}
FIGURES: dict[str, float | None] = {
    "offered": 1_200,
    "goodput_share": 0.99583,
    "shed_share": 0.0,
    "added_p50_ms": 1.25,
    "added_p95_ms": 20.0,
    "added_p99_ms": 1_234.56,
    "calls_per_request": 1.0417,
    "jain": 0.9991,
    "health_max_ms": 12.0,
}


def made(name: str, *, passed: bool = True, missed: tuple[str, ...] = (), **figures: float | None) -> Report:
    expectations = [Expectation(figure=one, min=None, max=10.0, value=12.5, kept=False) for one in missed]
    tables: dict[str, Any] = {"machine": MACHINE, "notes": []}
    return Report(
        scenario=name,
        about="",
        version="1.0",
        commit="abc",
        seed=1,
        duration_s=10.0,
        data={},
        figures=FIGURES | figures,
        expectations=expectations,
        passed=passed,
        tables=tables,
    )


def written(folder: Path, *reports: Report) -> None:
    for one in reports:
        (folder / f"{one.scenario}.json").write_bytes(one.json())


def test_a_line_for_each_scenario() -> None:
    lines = table([made("calm"), made("storm", jain=None, added_p99_ms=None)]).splitlines()

    assert lines[0].count("|") == lines[1].count("|") == 10
    assert lines[2] == "| calm | passed | 1,200 | 99.58 % | 0 % | 1.2, 20, 1,234.6 | 1.042 | 0.999 | 12 |"
    assert lines[3] == "| storm | passed | 1,200 | 99.58 % | 0 % | 1.2, 20, - | 1.042 | - | 12 |"
    assert lines[4:] == ["", "Version 1.0, commit abc; 2 CPUs (Abacus 2), Linux 6."]


def test_each_kind_of_load_has_its_line() -> None:
    of_loads: dict[str, float | None] = {
        "plain.offered": 700,
        "plain.added_p99_ms": 900,
        "hedged.offered": 500,
        "hedged.calls_per_request": 1.05,
    }

    lines = table([made("hedging", **of_loads)]).splitlines()

    assert lines[3] == "| &nbsp;&nbsp;plain |  | 700 | - | - | -, -, 900 | - |  |  |"
    assert lines[4] == "| &nbsp;&nbsp;hedged |  | 500 | - | - | -, -, - | 1.05 |  |  |"


def test_what_was_missed_is_said() -> None:
    text = table([made("calm"), made("storm", passed=False, missed=("failed", "gap_p99_ms")), made("dead", passed=False)])

    assert "| storm | **missed** |" in text
    assert "Missed:\n\n- `storm`: `failed` <= 10, was 12.5, `gap_p99_ms` <= 10, was 12.5\n- `dead`: the gateway ended\n" in text


def test_the_table_goes_between_the_marks_of_a_page() -> None:
    page = "# Load\n\n<!-- scenarios -->\nold\n<!-- /scenarios -->\n\nmore\n"

    once = put(page, "new\n")

    assert once == "# Load\n\n<!-- scenarios -->\n\nnew\n\n<!-- /scenarios -->\n\nmore\n"
    assert put(once, "new\n") == once
    with pytest.raises(ValueError, match="the page has no <!-- scenarios -->"):
        put("# Load", "new")


def test_reports_are_read_in_the_order_of_their_scenarios(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, made("a"), made("b", passed=False, missed=("failed",)))
    files = ["b.yaml", "a.yaml"]

    assert main([*files, "--read", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().out == table([made("b", passed=False, missed=("failed",)), made("a")])
    assert main(["a.yaml", "--read", "--out", str(tmp_path)]) == 0
    assert main(["a.yaml", "none.yaml", "--read", "--out", str(tmp_path)]) == 2
    assert "none: no report" in capsys.readouterr().err


def test_a_scenario_that_cannot_be_run_has_no_line_though_an_old_report_lies_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, made("gone"))

    assert main([str(tmp_path / "gone.yaml"), "--out", str(tmp_path)]) == 2
    assert "| gone |" not in capsys.readouterr().out


def test_the_page_of_the_product_has_the_marks() -> None:
    page = Path(module.__file__).parents[1] / "docs/load.md"

    assert "new" in put(page.read_text(), "new\n")
