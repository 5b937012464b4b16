"""Whether an answer came to its end.

1: it ended by itself; 0: it was cut by the model's context or the plan's budget, or there is nothing in it but thoughts. A cut that the
caller asked for (`max_tokens`) says nothing, nor does an answer without a reason why it ended.
"""

from __future__ import annotations

from typing import Final

from policies.values.answer import Said, Wanted

_BY_ITSELF: Final = frozenset(("stop", "tool_calls", "function_call", "eos", "end_turn", "stop_sequence"))


def truncation(wanted: Wanted, said: Said) -> float | None:
    """0, 1 or None."""
    if said.finish == "length":
        return None if wanted.limited else 0.0
    if said.finish not in _BY_ITSELF:
        return None
    return float(bool(said.tool_calls or said.refused or said.spoken.strip()))
