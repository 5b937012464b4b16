r"""A short text as plain characters: what compatibility, Markdown and LaTeX say by form alone is taken away, what they mean is kept.

\text{5}, \mathrm{cm}, $x$, \left(, \,       5, cm, x, (, nothing
full width, ligatures, unicode minus          NFKC, "-"
5 superscript 2, 3 with a vulgar half         5^2, 3 1/2 (which NFKC alone would make 52 and 31/2)
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_RAISED: Final = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b"
_LOWERED: Final = str.maketrans(_RAISED, "0123456789+-")
_RAISED_RUN: Final = re.compile(f"[{_RAISED}]+")
_VULGAR: Final = re.compile("(?<=[0-9])(?=[\u00bc-\u00be\u2150-\u215e])")
_SAME: Final = str.maketrans(
    {
        "\u2010": "-",
        "\u2011": "-",
        "\u2012": "-",
        "\u2013": "-",
        "\u2212": "-",
        "\u2044": "/",
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u200b": None,
        "\u200e": None,
        "\u200f": None,
        "\u2060": None,
        "\ufeff": None,
    }
)
_WRAPPED: Final = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|hbox|boxed|fbox|operatorname) ?\{([^{}]*)\}")
_LATEX: Final = (
    (re.compile(r"\\(?:left|right|displaystyle|quad|qquad|big|Big|bigl|bigr)(?![A-Za-z])"), ""),
    (re.compile(r",\\! ?"), ""),  # between thousands, and nowhere else
    (re.compile(r"(?<!\\)\\!"), ""),
    (re.compile(r"(?<!\\)(?:\\[,;: ]|~)"), " "),
    (re.compile(r"\\[()\[\]]"), ""),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\[dtc]frac(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"\^ ?\{? ?\\circ ?\}?|\\degrees?(?![A-Za-z])"), "\u00b0"),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\leq?(?![A-Za-z])"), "<="),
    (re.compile(r"\\geq?(?![A-Za-z])"), ">="),
    (re.compile(r"\\(?:cup)(?![A-Za-z])"), "\u222a"),
    (re.compile(r"(?:\\\$|(?<![$\\])\$(?=[0-9.,][^$]*\Z))"), "USD "),
    (re.compile(r"\$+"), ""),
)
_WRAPPERS: Final = 3
_AROUND: Final = " \"'*.,;:?"


def normal(text: str) -> str:
    """NFKC, with what it would change the meaning of written out first. Latin text is returned as it is."""
    if text.isascii():
        return text
    text = _VULGAR.sub(" ", text)
    text = _RAISED_RUN.sub(lambda run: "^" + run[0].translate(_LOWERED), text)
    return unicodedata.normalize("NFKC", text.translate(_SAME)).translate(_SAME)


def plain(text: str) -> str:
    """The text without Markdown and LaTeX that changes only how it looks; white space as single spaces. Time: linear in the text."""
    text = normal(text)
    if "\\" in text or "$" in text or "~" in text:
        for _ in range(_WRAPPERS):
            if "\\" not in text:
                break
            text = _WRAPPED.sub(r"\1", text)
        for pattern, instead in _LATEX:
            text = pattern.sub(instead, text)
    text = " ".join(text.replace("**", "").replace("__", "").replace("`", "").split()).rstrip(_AROUND)
    bare = text.lstrip(_AROUND)
    points = len(text) - len(bare)
    return "." + bare if points and text[points - 1] == "." and bare[:1].isdigit() else bare
