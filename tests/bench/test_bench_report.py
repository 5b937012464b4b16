"""A report as JSON and as text."""

from __future__ import annotations

import json
from typing import Any

from gateway.bench.plot import dots
from gateway.bench.report import Report, columns


def report(**figures: float | None) -> Report:
    tables: dict[str, Any] = {"bars": {"a": 10.0, "b": 1.0}, "reasons": {"b": "no b here"}, "notes": ["Mind the gap."]}
    return Report(suite="overhead", commit=None, figures=figures, tables=tables)


def test_the_object_has_the_public_keys() -> None:
    found = json.loads(report(a=1.5, b=None).json())
    assert list(found) == ["suite", "version", "commit", "seeds", "data", "figures", "tables"]
    assert found["figures"] == {"a": 1.5, "b": None}


def test_a_bar_is_missed_by_too_much_and_by_nothing() -> None:
    assert report(a=10.0, b=0.2).missed() == []
    assert report(a=10.1, b=0.2).missed() == ["a"]
    assert report(a=1.0, b=None).missed() == ["b"]


def test_the_text_sets_bars_and_reasons_beside_the_figures() -> None:
    lines = report(a=12.3456, b=None, c=43_210.9).text().splitlines()
    rows = [line.split() for line in lines[2:6]]
    assert rows == [["figure", "value", "bar"], ["a", "12.3", "<=", "10", "MISSED"], ["b", "-", "<=", "1", "MISSED"], ["c", "43,211"]]
    assert "  b: no b here" in lines
    assert lines[-1] == "Mind the gap."


def test_columns_are_aligned() -> None:
    assert columns([["a", "1"], ["long", "100"]]) == ["a       1", "long  100"]


def test_a_plot_marks_the_least_and_escapes_names() -> None:
    plot = dots("CPU", "us", {"a<b": [4.0, 2.0], "empty": []})
    assert plot.count("<circle") == 2
    assert plot.count('fill="#36c"') == 1
    assert "a&lt;b" in plot
