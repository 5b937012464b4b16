"""Whether tools were called as they were offered.

1: each call names an offered tool, its arguments are a JSON object, and they fit the tool's schema; 0: one does not. It says nothing where
no tool was offered or called, or where the answer was cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from policies.signals.json_schema import Undecided, fits
from policies.values.answer import Said, ToolCall, Wanted


def tools(wanted: Wanted, said: Said) -> float | None:
    """0, 1 or None."""
    offered = wanted.parameters
    if offered is None or not said.tool_calls or said.finish == "length":
        return None
    try:
        return float(all(_right(call, offered) for call in said.tool_calls))
    except Undecided:
        return None


def _right(call: ToolCall, offered: Mapping[str, Any]) -> bool:
    if call.name not in offered:
        return False
    parameters = offered[call.name]
    if parameters is None:
        return True
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return isinstance(arguments, dict) and fits(arguments, parameters)
