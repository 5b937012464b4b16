"""`shape-1`: what can be counted in a request without understanding it.

    log(1 + n) / c     for numbers: characters, words, numbers, ...; c brings usual ones to about 1
    n / m              for shares: of characters, of words, of lines
    0 or 1             for flags

Counts are sums over all messages, so the features do not hang on the last word of a conversation. `FEATURES` names the numbers in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import expm1, log1p
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.encoders.text import Excerpt, Memo, Request, excerpts, utf8

FEATURES: Final = (
    "user_chars",
    "user_words",
    "last_user_chars",
    "all_chars",
    "lines",
    "first_line",
    "word_length",
    "distinct_words",
    "digits",
    "numbers",
    "symbols",
    "maths",
    "brackets",
    "parentheses",
    "capitals",
    "above_ascii",
    "code_fences",
    "indented",
    "list_items",
    "options",
    "options_with_digits",
    "questions",
    "lines_that_ask",
    "question_words",
    "negations",
    "urls",
    "user_turns",
    "system_share",
    "tools",
    "json_schema",
    "images",
    "max_tokens_given",
    "max_tokens",
)

_CHARS_SCALE: Final = 10.0
_WORDS_SCALE: Final = 8.0
# Lines that are looked at of a message.
_LINES: Final = 200

_MATHS_SIGNS: Final = ("\u2211", "\u222b", "\u221a", "\u2264", "\u2265", "\u00d7", "\u00f7", "\u03c0")
_QUESTION_MARKS_ABROAD: Final = ("\uff1f", "\u061f", "\u037e")
_NEGATIONS: Final = (" not ", "n't ", " no ", " never ", " except", " without ", " neither ", " none ")
_QUESTION_WORDS: Final = ("what ", "why ", "how ", "which ", "who ", "when ", "where ")
_INLINE_OPTIONS: Final = ("(a)", "(b)", "(c)", "(d)", " a) ", " b) ", " c) ", " d) ")
# An indented line, an item of a list, an option that can be chosen.
_LINE: Final = re.compile(r"(?P<indent> {4}|\t)| {0,3}(?:(?P<item>[-*\u2022]|\d{1,3}[.)])|(?P<option>\(?[A-Ja-j][.):]))(?=\s)")
_DIGIT: Final = re.compile("[0-9]")


class Counts(NamedTuple):
    """What is counted in one text. The first eight count characters."""

    spaces: int
    digits: int
    capitals: int
    letters: int
    symbols: int
    maths: int
    brackets: int
    above_ascii: int
    words: int
    distinct: int
    numbers: int
    lines: int
    first_line: int
    fences: int
    indented: int
    items: int
    options: int
    options_with_digits: int
    parentheses: int
    questions: int
    lines_that_ask: int
    question_words: int
    negations: int
    urls: int


def _table() -> npt.NDArray[np.int64]:
    """(256, 8): which bytes belong to which class. Of a character above ASCII only the first byte counts."""
    letters = bytes(range(65, 91)) + bytes(range(97, 123))
    classes = (
        b" \t\n\r\x0b\x0c",
        b"0123456789",
        letters[:26],
        letters,
        bytes(each for each in range(33, 127) if not chr(each).isalnum()),
        b"=+*/^<>\\$%",
        b"{}[]();",
        bytes(range(0xC0, 0x100)),
    )
    table = np.zeros((256, len(classes)), dtype=np.int64)
    for column, members in enumerate(classes):
        table[list(members), column] = 1
    return table


_CLASSES: Final = _table()
_IS_DIGIT: Final = _CLASSES[:, 1].astype(bool)


class Shape:
    """The encoder; remembers the counts of `memo` messages."""

    name = "shape-1"
    dim = len(FEATURES)
    slow = False

    def __init__(self, memo: int = 8_192) -> None:
        self._memo: Memo[Counts] = Memo(memo)

    def encode(self, prompt: Request) -> npt.NDArray[np.float32]:
        """float32, (dim,)."""
        read = excerpts(prompt.turns)
        return np.array(_features(prompt, read, [self._memo.value(each.text, counted) for each in read]), dtype=np.float32)


def encoder() -> Shape:
    """The encoder, with a memory of its own."""
    return Shape()


def user_chars(block: npt.NDArray[np.float32]) -> float:
    """Characters of the user's messages, read back from the features; right to a part in a hundred thousand."""
    return expm1(float(block[FEATURES.index("user_chars")]) * _CHARS_SCALE)


def user_words(block: npt.NDArray[np.float32]) -> float:
    """Words of the user's messages, read back from the features."""
    return expm1(float(block[FEATURES.index("user_words")]) * _WORDS_SCALE)


def counted(text: str) -> Counts:
    """The counts of one text."""
    raw = utf8(text)
    codes = np.frombuffer(raw, dtype=np.uint8)
    spaces, digits, capitals, letters, symbols, maths, brackets, above = (np.bincount(codes, minlength=256) @ _CLASSES).tolist()
    lowered = text.lower()
    words = lowered.split()
    questions = raw.count(b"?")
    if above:
        maths += sum(map(text.count, _MATHS_SIGNS))
        questions += sum(map(text.count, _QUESTION_MARKS_ABROAD))
    indented, items, options, with_digits, first = _lines(text)
    if "a)" in lowered:
        options = max(options, sum(map(lowered.count, _INLINE_OPTIONS)))
    return Counts(
        spaces,
        digits,
        capitals,
        letters,
        symbols,
        maths,
        brackets,
        above,
        len(words),
        len(set(words)),
        _runs(_IS_DIGIT[codes]) if digits else 0,
        raw.count(b"\n") + 1,
        first,
        raw.count(b"```"),
        indented,
        items,
        options,
        with_digits,
        raw.count(b"("),
        questions,
        (raw.count(b"?\n") + raw.endswith(b"?")) if questions else 0,
        sum(map(lowered.count, _QUESTION_WORDS)),
        sum(map(lowered.count, _NEGATIONS)),
        raw.count(b"http://") + raw.count(b"https://"),
    )


def _lines(text: str) -> tuple[int, int, int, int, int]:
    """Indented lines, items of lists, options, options with digits among them, and the length of the first line."""
    lines = text.split("\n", _LINES)
    indented = items = options = with_digits = 0
    for line in lines[:_LINES]:
        match = _LINE.match(line)
        if match is None:
            continue
        kind = match.lastgroup
        if kind == "option":
            options += 1
            with_digits += _DIGIT.search(line) is not None
        elif kind == "item":
            items += 1
        else:
            indented += 1
    return indented, items, options, with_digits, len(lines[0])


def _runs(member: npt.NDArray[np.bool_]) -> int:
    """How many runs of True there are."""
    return int(np.count_nonzero(member[1:] > member[:-1])) + int(member[0])


def _features(prompt: Request, read: Sequence[Excerpt], counts: Sequence[Counts]) -> list[float]:
    n = Counts._make(map(sum, zip(*counts, strict=True))) if counts else Counts(*[0] * len(Counts._fields))
    users = [index for index, each in enumerate(read) if each.role == "user"]
    all_chars = sum(each.chars for each in read)
    visible = n.digits + n.letters + n.symbols + n.above_ascii
    ink = max(1, visible)
    words = max(1, n.words)
    lines = max(1, n.lines)
    return [
        log1p(sum(read[index].chars for index in users)) / _CHARS_SCALE,
        log1p(sum(counts[index].words for index in users)) / _WORDS_SCALE,
        log1p(read[users[-1]].chars if users else 0) / _CHARS_SCALE,
        log1p(all_chars) / _CHARS_SCALE,
        log1p(n.lines) / 5.0,
        log1p(n.first_line) / 8.0,
        min(visible / words, 20.0) / 10.0,
        n.distinct / words,
        n.digits / ink,
        log1p(n.numbers) / 5.0,
        n.symbols / ink,
        log1p(n.maths) / 5.0,
        n.brackets / ink,
        log1p(n.parentheses) / 4.0,
        n.capitals / max(1, n.letters),
        n.above_ascii / ink,
        log1p(n.fences) / 2.0,
        n.indented / lines,
        log1p(n.items) / 3.0,
        log1p(n.options) / 3.0,
        log1p(n.options_with_digits) / 2.0,
        log1p(n.questions) / 2.0,
        log1p(n.lines_that_ask) / 2.0,
        log1p(n.question_words) / 3.0,
        log1p(n.negations) / 3.0,
        log1p(n.urls) / 2.0,
        log1p(prompt.user_turns) / 4.0,
        sum(each.chars for each in read if each.role in ("system", "developer")) / max(1, all_chars),
        float(prompt.tools),
        float(prompt.json_schema),
        float(prompt.images),
        float(prompt.max_tokens is not None),
        log1p(max(0, prompt.max_tokens or 0)) / 10.0,
    ]
