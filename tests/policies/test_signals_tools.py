"""Whether tools were called as they were offered."""

from __future__ import annotations

from typing import Any

import pytest

from policies.signals.tools import tools
from policies.values.answer import Said, ToolCall, Wanted

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]},
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
SHELL = {"type": "custom", "custom": {"name": "shell"}}
OFFERED = Wanted(tools=[WEATHER, NOW, SHELL])


def called(*calls: tuple[str, str], finish: str = "tool_calls") -> Said:
    return Said("", tuple(ToolCall(*each) for each in calls), finish)


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("weather", '{"city": "Kyiv"}', 1.0),
        ("weather", '{"city": "Kyiv", "days": 3}', 1.0),
        ("weather", '{"days": 3}', 0.0),
        ("weather", '{"city": 3}', 0.0),
        ("weather", '{"city": "Kyiv"', 0.0),
        ("weather", "Kyiv", 0.0),
        ("weather", '["Kyiv"]', 0.0),
        ("weather", "", 0.0),
        ("Weather", '{"city": "Kyiv"}', 0.0),
        ("forecast", "{}", 0.0),
        ("now", "{}", 1.0),
        ("now", "null", 0.0),
        ("shell", "ls -l", 1.0),
    ],
)
def test_one_call(name: str, arguments: str, value: float) -> None:
    assert tools(OFFERED, called((name, arguments))) == value


def test_one_wrong_call_is_enough() -> None:
    assert tools(OFFERED, called(("now", "{}"), ("weather", '{"city": "Oslo"}'))) == 1.0
    assert tools(OFFERED, called(("now", "{}"), ("weather", "{}"))) == 0.0


@pytest.mark.parametrize("offered", [None, [], {}, "tools"])
def test_without_tools_it_says_nothing(offered: Any) -> None:
    assert tools(Wanted(tools=offered), called(("now", "{}"))) is None


def test_without_a_call_or_where_it_was_cut_it_says_nothing() -> None:
    assert tools(OFFERED, Said("It is noon.", finish="stop")) is None
    assert tools(OFFERED, called(("weather", '{"ci'), finish="length")) is None


def test_a_tool_that_cannot_be_read_tells_nothing() -> None:
    broken = {"type": "function", "function": {"name": "f", "parameters": {"type": "thing"}}}
    assert tools(Wanted(tools=[broken, 3, {"type": "function"}]), called(("f", "{}"))) is None
