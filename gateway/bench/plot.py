"""A dot plot as SVG, without a plotting library: one row per series, one dot per measurement, the least one filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_ROW, _LEFT, _WIDTH, _TOP = 28, 220, 460, 56


def dots(title: str, unit: str, series: Mapping[str, Sequence[float]]) -> str:
    """The plot; the axis starts at 0 and ends at the largest value. Empty series keep an empty row."""
    top = max((value for values in series.values() for value in values), default=0.0) or 1.0
    height = _TOP + _ROW * len(series) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 110} {height}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="16" y="28" font-size="15">{escape(title)} ({escape(unit)})</text>',
    ]
    for row, (name, values) in enumerate(series.items()):
        y = _TOP + _ROW * row + _ROW // 2
        parts.append(f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + _WIDTH}" y2="{y}" stroke="#ddd"/>')
        least = min(values, default=None)
        parts += [
            f'<circle cx="{_LEFT + _WIDTH * value / top:.1f}" cy="{y}" r="5" stroke="#36c" fill="{"#36c" if value == least else "none"}"/>'
            for value in values
        ]
        if least is not None:
            parts.append(f'<text x="{_LEFT + _WIDTH + 14}" y="{y + 4}">{least:.4g}</text>')
    return "\n".join([*parts, "</svg>", ""])
