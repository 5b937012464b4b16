"""One value of a configuration's text is changed, and nothing else of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gateway.config.editing import REMOVED, NotEditable, edited

TEXT = """\
version: 1  # of the format
policies:
  # what serves
  learn:
    type: linucb   # at first
    params: {alpha: 0.5}
    floor: 0.02
  # what may come
  next: {type: thompson, floor: 0.1}
virtual_models:
  auto:
    policy: learn   # see above
    plans: {a: {model: m}}
server: {secret: "${SECRET}"}
"""
NEW: dict[str, Any] = {"type": "rules", "params": {"otherwise": "a", "signals": {}}, "wrappers": [{"type": "sticky"}], "seed": 3}


def lines(text: str) -> list[str]:
    return text.splitlines()


def test_a_section_in_lines_is_written_in_lines() -> None:
    found = edited(TEXT, ("policies", "learn"), NEW)
    assert yaml.safe_load(found)["policies"] == {"learn": NEW, "next": {"type": "thompson", "floor": 0.1}}
    assert lines(found)[:8] == [
        "version: 1  # of the format",
        "policies:",
        "  # what serves",
        "  learn:",
        '    type: "rules"',
        "    params:",
        '      otherwise: "a"',
        "      signals: {}",
    ]
    assert lines(found)[-7:] == lines(TEXT)[-7:]


def test_a_section_in_braces_stays_in_braces() -> None:
    found = edited(TEXT, ("policies", "next"), {"type": "random"})
    assert '  next: {"type": "random"}' in lines(found)
    assert [line for line in lines(found) if "next" not in line] == [line for line in lines(TEXT) if "next:" not in line]


def test_a_scalar_keeps_its_comment() -> None:
    found = edited(TEXT, ("virtual_models", "auto", "policy"), "next")
    assert found == TEXT.replace("policy: learn   # see above", 'policy: "next"   # see above')


def test_a_new_section_comes_behind_the_others() -> None:
    found = edited(TEXT, ("policies", "third"), {"type": "random", "floor": 0.5})
    assert yaml.safe_load(found)["policies"]["third"] == {"type": "random", "floor": 0.5}
    assert lines(found)[9:12] == ["  third:", '    type: "random"', "    floor: 0.5"]
    assert [line for line in lines(found) if line not in lines(found)[9:12]] == lines(TEXT)


def test_what_is_on_the_way_is_made() -> None:
    found = edited("version: 1\nbackends: {}", ("policies", "learn"), {"type": "random"})
    assert yaml.safe_load(found) == {"version": 1, "backends": {}, "policies": {"learn": {"type": "random"}}}
    assert yaml.safe_load(edited('{"version": 1}', ("policies", "learn"), {"type": "random"})) == {
        "version": 1,
        "policies": {"learn": {"type": "random"}},
    }


def test_a_section_is_taken_out_with_its_lines() -> None:
    found = edited(TEXT, ("policies", "learn"), REMOVED)
    assert yaml.safe_load(found)["policies"] == {"next": {"type": "thompson", "floor": 0.1}}
    assert "  # what may come" in lines(found) and "at first" not in found
    last = edited(found, ("policies", "next"), REMOVED)
    assert yaml.safe_load(last)["policies"] == {} and yaml.safe_load(last)["virtual_models"]["auto"]["policy"] == "learn"


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_of_json_any_one_can_be_taken_out(name: str) -> None:
    whole = {"version": 1, "policies": {each: {"type": "random", "params": {"x": each}} for each in "abc"}}
    for text in (json.dumps(whole), json.dumps(whole, indent=2)):
        found = json.loads(edited(text, ("policies", name), REMOVED))
        assert found["policies"] == {each: value for each, value in whole["policies"].items() if each != name}  # type: ignore[attr-defined]


def test_nothing_to_change_changes_nothing() -> None:
    assert edited(TEXT, ("policies", "next"), {"type": "thompson", "floor": 0.1}) == TEXT
    assert edited(TEXT, ("policies", "nobody"), REMOVED) == TEXT


def test_what_would_change_more_is_refused() -> None:
    shared = "policies:\n  a: &one {type: random}\n  b: *one\nvirtual_models: {}\n"
    with pytest.raises(NotEditable):
        edited(shared, ("policies", "a"), {"type": "fixed"})
    merged = "base: &base\n  a: {type: random}\npolicies:\n  <<: *base\n  b: {type: fixed}\n"
    with pytest.raises(NotEditable):
        edited(merged, ("policies", "a"), REMOVED)
    assert yaml.safe_load(edited(merged, ("policies", "a"), {"type": "fixed"}))["policies"]["a"] == {"type": "fixed"}


def test_awkward_names_and_values_come_through() -> None:
    for name in ("yes", "null", "12", "a b", "a:b", "é", "#"):
        value = {name: "12:30", "off": None, "list": [{"x": 1e-7}], "text": "a # b: c\n${X}"}
        found = edited(TEXT, ("policies", name), value)
        assert edited(found, ("policies", name), value) == found
        assert edited(edited(found, ("policies", name), {"type": "z"}), ("policies", name), REMOVED) == TEXT
