"""Whether an answer is the JSON that was asked for.

1: it parses, and fits the schema as far as that is looked at (json_schema.py); 0: it does not. It says nothing where no JSON was asked for,
where a tool was called instead, or where the answer was cut or withheld.
"""

from __future__ import annotations

import msgspec

from policies.signals.json_schema import Undecided, fits
from policies.values.answer import Said, Wanted


def schema(wanted: Wanted, said: Said) -> float | None:
    """0, 1 or None."""
    is_json, described = wanted.schema
    if not is_json or said.tool_calls or said.finish in ("length", "content_filter"):
        return None
    try:
        value = msgspec.json.decode(said.spoken)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return 0.0
    if described is None:
        return float(isinstance(value, dict))
    try:
        return float(fits(value, described))
    except Undecided:
        return None
