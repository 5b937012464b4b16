"""How these commands end when they cannot do what was asked."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any


class Failed(Exception):
    """It could not be done. status: of the command: 1: the data say no; 2: the configuration or the call is wrong."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def run(
    name: str,
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    work: Callable[[argparse.Namespace], tuple[dict[str, Any], str]],
) -> int:
    """Parses, works, prints the JSON object or the text; the exit status. work: raises Failed."""
    args = parser.parse_args(argv)
    try:
        plain, text = work(args)
    except Failed as failed:
        if args.json:
            sys.stdout.write(json.dumps({"ok": False, "error": str(failed)}) + "\n")
        else:
            sys.stderr.write(f"trilemma {name}: {failed}\n")
        return failed.status
    sys.stdout.write(json.dumps({"ok": True, **plain}, allow_nan=False) + "\n" if args.json else text)
    return 0


def finite(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if value == value and abs(value) != float("inf") else None
