"""Numbers for people: a table of text, with columns as wide as they must be."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines; the first column to the left, all others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        + "\n"
        for line in lines
    )


def number(value: float | None, digits: int = 4) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None or value != value else f"{value:.{digits}f}"


def small(value: float | None) -> str:
    """A number of any size, to 4 digits."""
    return "-" if value is None or value != value else f"{value:.4g}"
