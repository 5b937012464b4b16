from __future__ import annotations

from gateway.importing.report import Place, Report, counts, table


def report() -> Report:
    found = Report()
    for line in (3, 9, 12, 20, 3):
        found.lost(Place("c.yaml", line), "a.rpm", "no limit")
    found.add("unneeded", Place("d.yaml", 1), "b", "a note")
    found.todo(Place("keys.json"), "keys", "look")
    return found


def test_same_words_are_one_entry_and_kinds_stand_in_order() -> None:
    entries = report().entries
    assert [(entry.kind, entry.setting, len(entry.places)) for entry in entries] == [
        ("lost", "a.rpm", 4),
        ("todo", "keys", 1),
        ("unneeded", "b", 1),
    ]
    assert counts(entries) == {"lost": 1, "changed": 0, "todo": 1, "unneeded": 1}


def test_the_table() -> None:
    assert table(report().entries).splitlines() == [
        "could not be mapped (1):",
        "  c.yaml:3,9,12 +1  a.rpm  no limit",
        "needs you (1):",
        "  keys.json         keys   look",
        "not needed (1):",
        "  d.yaml:1          b      a note",
    ]
    assert table([]) == ""


def test_as_data() -> None:
    assert report().entries[1].as_json() == {
        "kind": "todo",
        "setting": "keys",
        "message": "look",
        "places": [{"file": "keys.json", "line": 0, "column": 0, "path": ""}],
    }
