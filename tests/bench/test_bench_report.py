"""A report as JSON and as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.bench.plot import dots
from gateway.bench.report import Bar, Report, columns, measured_on, number, pipes, put


def report(**figures: float | None) -> Report:
    tables: dict[str, Any] = {"bars": {"a": Bar(most=10.0), "b": Bar(least=1.0)}, "reasons": {"b": "no b here"}, "notes": ["Mind the gap."]}
    return Report(suite="overhead", commit=None, figures=figures, tables=tables)


def test_the_object_has_the_public_keys() -> None:
    found = json.loads(report(a=1.5, b=None).json())
    assert list(found) == ["suite", "version", "commit", "seeds", "data", "figures", "tables"]
    assert found["figures"] == {"a": 1.5, "b": None}


def test_a_bar_is_missed_by_too_much_by_too_little_and_by_nothing() -> None:
    assert report(a=10.0, b=1.0).missed() == []
    assert report(a=10.1, b=2.0).missed() == ["a"]
    assert report(a=1.0, b=0.9).missed() == ["b"]
    assert report(a=1.0, b=None).missed() == ["b"]


def test_the_text_sets_bars_and_reasons_beside_the_figures() -> None:
    lines = report(a=12.3456, b=None, c=43_210.9).text().splitlines()
    rows = [line.split() for line in lines[2:6]]
    assert rows == [["figure", "value", "bar"], ["a", "12.3", "<=", "10", "MISSED"], ["b", "-", ">=", "1", "MISSED"], ["c", "43,211"]]
    assert "  b: no b here" in lines
    assert lines[-1] == "Mind the gap."


def test_other_tables_are_shown_where_the_suite_wants_it() -> None:
    tables: dict[str, Any] = {"shown": ["lanes"], "lanes": {"hot": {"us": 180.0, "x": 9.0}, "route": {"us": 400.0, "x": None}}}
    lines = Report(suite="overhead", commit=None, figures={"a": 1.0}, tables=tables).text().splitlines()
    assert [line.split() for line in lines[5:8]] == [["lanes", "us", "x"], ["hot", "180.0", "9"], ["route", "400.0", "-"]]


def test_a_page_shows_the_same_and_what_it_was_measured_on() -> None:
    machine = {"cpus": 2, "cpu": "Abacus", "system": "Linux 6", "load_average": [0.5, 1, 2]}
    tables: dict[str, Any] = {
        "bars": {"a": Bar(least=2.0, most=10.0)},
        "reasons": {"b": "no b here"},
        "notes": ["Mind."],
        "machine": machine,
    }
    text = Report(suite="overhead", version="1.0", commit="abc", figures={"a": 3.0, "b": None}, tables=tables).markdown()
    assert text.splitlines() == [
        "| figure | value | bar |  |",
        "|---|---:|---:|---:|",
        "| a | 3 | >= 2, <= 10 | kept |",
        "| b | - |  |  |",
        "",
        "- `b` could not be had: no b here.",
        "",
        "Mind.",
        "",
        "Version 1.0, commit abc; 2 CPUs (Abacus), Linux 6, load average 0.5 before.",
    ]
    assert measured_on("1.0", None, machine).startswith("Version 1.0, commit unknown;")


def test_a_table_in_a_page_is_replaced() -> None:
    page = "before\n<!-- x -->\nold\n<!-- /x -->\nafter\n"
    once = put(page, "x", "new\n")
    assert once == "before\n<!-- x -->\n\nnew\n\n<!-- /x -->\nafter\n"
    assert put(once, "x", "new\n") == once
    with pytest.raises(ValueError, match="<!-- y -->"):
        put(page, "y", "new")


def test_a_bar_in_a_cell_is_escaped() -> None:
    assert pipes([["a", "b"], ["1|2", "3"]]) == ["| a | b |", "|---|---:|", "| 1\\|2 | 3 |"]


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.0123, "0.0123"), (2.345, "2.35"), (45.67, "45.7"), (43_210.9, "43,211")])
def test_numbers_are_told_to_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_columns_are_aligned() -> None:
    assert columns([["a", "1"], ["long", "100"]]) == ["a       1", "long  100"]


def test_a_plot_marks_the_least_and_escapes_names() -> None:
    plot = dots("CPU", "us", {"a<b": [4.0, 2.0], "empty": []})
    assert plot.count("<circle") == 2
    assert plot.count('fill="#36c"') == 1
    assert "a&lt;b" in plot
