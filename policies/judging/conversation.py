"""A request as a judge sees it: the turns of it that there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from policies.values.prompt import Turn

LEFT_OUT: Final = "[...]\n"
"""Stands where something was left out."""


def conversation(turns: Sequence[Turn], room: int) -> str:
    """The request, in at most so many characters: of the last turns as many as fit, and a first one that instructs, in at most a quarter.
    What is too long by itself keeps its beginning and its end."""
    lines = [f"[{turn.role}]\n{turn.text}\n" for turn in turns if turn.text]
    if sum(map(len, lines)) <= room:
        return "".join(lines)
    instructs = len(lines) > 1 and lines[0].startswith(("[system]", "[developer]"))
    head = _middle_out(lines.pop(0), room // 4) if instructs else ""
    room = max(0, room - len(head) - len(LEFT_OUT))
    kept: list[str] = []
    for line in reversed(lines):
        if len(line) > room:
            kept += [] if kept else [_middle_out(line, room)]
            break
        kept.append(line)
        room -= len(line)
    return head + (LEFT_OUT if len(kept) < len(lines) else "") + "".join(reversed(kept))


def _middle_out(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = max(0, most - len(LEFT_OUT) - 1) // 2
    return f"{text[:half]}\n{LEFT_OUT}{text[len(text) - half :]}" if half else text[:most]
