r"""What a judge's reply comes to; None: nothing that can be relied on.

    choice   `Judgment: N`, N from 1 on: the last such word counts. "Judgment: 2 or 3", "Judgment: none" or a number that was not shown is
             no choice, even where a readable one stands before it
    grade    `Verdict: N`, 1 to 5 (policies/prompts/judge.py)

Thoughts are left out before (policies/answers/thinking.py), and a reply that was cut has no last word. A reply that is nothing but a number
is read too, and marks around the number are fine: "2", **2**, \boxed{2}, [2], 2/4, {"best": 2}.
"""

from __future__ import annotations

import re
from typing import Final

from policies.prompts.judge import verdict
from policies.values.answer import Said
from policies.values.thinking import spoken

_BEFORE: Final = " \t\r\n*_`#:=$()[]{}<>\"'\u201c\u201d\u2018\u2019\u201e\u00ab\u00bb"
_AFTER: Final = _BEFORE + "."
_WORD: Final = re.compile(r"(?<![^\W_])judge?ment[\s*_`\"']{0,5}(?:[:=\uff1a]|\s[-\u2013\u2014]\s)", re.IGNORECASE)
_NUMBER: Final = re.compile(
    r"(?:(?:judge?ment|best|winner|choice|solution|candidate|answer|response|option|number|index|no\.)\W{0,5}?)?"
    r"(?:\\boxed\{)?(?<![-+.\u2212\u2013])(\d{1,9})(?:\s*(?:/|out of|of)\s*(\d{1,9}))?",
    re.IGNORECASE | re.ASCII,
)
_LONGEST: Final = 120


def choice(said: Said, shown: int) -> int | None:
    """Which of the answers shown is chosen, 1 to `shown`."""
    text = _last_word(said)
    words = list(_WORD.finditer(text))
    word = text[words[-1].end() :].lstrip(_BEFORE).partition("\n")[0] if words else text
    found = _NUMBER.fullmatch(word.strip(_BEFORE).rstrip(_AFTER)) if len(word) <= _LONGEST else None
    if found is None or found[2] not in (None, str(shown)):
        return None
    value = int(found[1])
    return value if 1 <= value <= shown else None


def grade(said: Said) -> int | None:
    """1 to 5, the best."""
    return verdict(_last_word(said))


def _last_word(said: Said) -> str:
    return "" if said.finish == "length" else (spoken(said.text) or "").strip()
