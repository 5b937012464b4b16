from __future__ import annotations

from gateway.serving.standing import Standings
from policies.values.situation import Standing


def test_a_conversation_stands_where_its_last_turn_was_served() -> None:
    now = [100.0]
    standings = Standings(clock=lambda: now[0])
    assert standings.of("a") is None
    assert standings.of(None) is None

    standings.note("a", "small", 120, "unit", None)
    now[0] += 7
    assert standings.of("a") == (Standing("small", 7.0, 120, 0), "unit")

    standings.note("b", "large", 300, "unit", Standing("small", 7.0, 120, 0))
    assert standings.of("b") == (Standing("large", 0.0, 300, 1), "unit")
    standings.note("c", "large", 400, "unit", Standing("large", 0.0, 300, 1))
    assert standings.of("c") == (Standing("large", 0.0, 400, 1), "unit")


def test_those_longest_silent_are_forgotten() -> None:
    standings = Standings(most=2)
    for key in "aba":
        standings.note(key, "p", 0, "u", None)
    standings.note("c", "p", 0, "u", None)

    assert [key for key in "abc" if standings.of(key)] == ["a", "c"]
