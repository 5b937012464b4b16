"""Curves as SVG, without a plotting library: a line per series over two axes from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

_SIDE, _LEFT, _TOP = 360, 64, 48
_COLOURS: Final = ("#36c", "#999", "#2a7", "#c63")


def curves(title: str, across: str, up: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """The plot. across, up: what the axes show; points: both from 0 to 1, in their order. Four series have a colour each."""
    width, height = _LEFT + _SIDE + 200, _TOP + _SIDE + 56
    bottom = _TOP + _SIDE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="16" y="28" font-size="15">{escape(title)}</text>',
        f'<text x="{_LEFT + _SIDE // 2}" y="{bottom + 44}" text-anchor="middle">{escape(across)}</text>',
        f'<text x="18" y="{_TOP + _SIDE // 2}" text-anchor="middle" transform="rotate(-90 18 {_TOP + _SIDE // 2})">{escape(up)}</text>',
    ]
    for tick in range(0, 11, 2):
        x, y = _LEFT + _SIDE * tick // 10, bottom - _SIDE * tick // 10
        parts.append(f'<path d="M{x} {_TOP}V{bottom}M{_LEFT} {y}H{_LEFT + _SIDE}" stroke="#eee"/>')
        parts.append(f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{tick / 10:g}</text>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{tick / 10:g}</text>')
    for number, (name, points) in enumerate(series.items()):
        colour, y = _COLOURS[number % len(_COLOURS)], _TOP + 20 * number + 10
        line = " ".join(f"{_LEFT + _SIDE * across_:.1f},{bottom - _SIDE * up_:.1f}" for across_, up_ in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_LEFT + _SIDE + 12}" y="{y}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
