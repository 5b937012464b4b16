r"""Whether two answers are the same by algebra: x(x+1) and x^2 + x, \frac{\sqrt{2}}{2} and 1/\sqrt{2}.

`math-verify` knows (https://github.com/huggingface/Math-Verify), over SymPy. It is no dependency: where it is not installed, nothing is
known. It takes milliseconds to seconds, and the first call a second to load; so it belongs into a thread, or rather a process, off the
event loop. A thread cannot be stopped: what looks as if it might grow without bounds is not asked about at all.
"""

from __future__ import annotations

import importlib
import logging
import re
from typing import Any, Final

from policies.answers.equivalence import Verdict

LONGEST: Final = 200
"""Characters of an answer that is still looked at."""
_GROWS: Final = re.compile(r"!|\\(?:binom|prod|sum|int|lim|iint)(?![A-Za-z])|\^[^^]{0,20}\^|\^\s*\{?\s*[-(]?\s*\d{3}|\d{40}|[eE]\d{3}")


def equal(one: str, other: str, seconds: int | None = None) -> Verdict:
    """unknown: math-verify is not installed, cannot read one of them, fails, or it might take for ever. seconds: a limit for each step,
    which is kept by a signal: in the main thread of a process only; None: no limit."""
    if any(not text.strip() or len(text) > LONGEST or _GROWS.search(text) for text in (one, other)):
        return "unknown"
    library = _library()
    if library is None:
        return "unknown"
    try:
        values = [library.parse(_as_mathematics(text), parsing_timeout=seconds) for text in (one, other)]
        if not all(values):
            return "unknown"
        return "equal" if library.verify(*values, timeout_seconds=seconds) else "different"
    except Exception:  # SymPy raises whatever an expression leads it to; the vote goes on by the keys
        return "unknown"


def _library() -> Any:
    try:
        library = importlib.import_module("math_verify")
    except ImportError:
        return None
    # It warns of every call that has no time limit.
    for name in ("parser", "grader"):
        logging.getLogger(f"math_verify.{name}").setLevel(logging.ERROR)
    return library


def _as_mathematics(text: str) -> str:
    return f"${text.strip().strip('$')}$"
