"""Where an answer says that it now gives the answer, and what it gives there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

_IS: Final = (
    r"\b(?:is|are|be|was|equals|ist|lautet|sind|est|es|\u00e9|\u00e8|jest|\u044d\u0442\u043e)\b|\u662f|\u4e3a|\u306f|\ub294|\uc740|\u2014"
)
_FOREIGN: Final = re.compile(rf"[^.:=\n]{{0,48}}?(?::|=|{_IS})", re.IGNORECASE)
_NOUN: Final = re.compile(rf"s?(?!\w){_FOREIGN.pattern}", re.IGNORECASE)
_FINAL: Final = re.compile(r"(?: result)? ?\*{0,2} ?[:=]", re.IGNORECASE)
_HEADING: Final = re.compile(r"[*_:# ]{0,6}(?=\n|\Z)")
_HEADED: Final = frozenset(("", "the", "my", "final", "the final", "my final"))
_TAGGED: Final = re.compile(r">([^<]{1,1000})</answer>", re.IGNORECASE)
_HASHED: Final = re.compile(r"[ \t]{1,4}([-+$\d.,/%]{1,60}|[A-H])[ \t]{0,4}(?=\n|\Z)")
_CHOSEN: Final = re.compile(
    r"(?<!\w)\(?(?P<letter>[A-Z])\)?\*{0,2} is (?:therefore |thus )?(?:the )?(?:correct|right|best)(?! ?(?:only )?if\b)"
)
_LEADS: Final = re.compile(
    r"[\s*_`:>=-]{0,8}(?:(?:therefore|thus|then|simply|just|exactly|approximately|about|clearly|definitely|indeed|likely|probably|option|choice"
    r"|letter|as follows|given by|equal to)\b[\s:,*]{0,4}){0,3}",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(r"(?:not|wrong|incorrect|no longer|never|neither)\b", re.IGNORECASE)
_SENTENCE_END: Final = re.compile(r"[.!?](?<![\s.(][A-Z][.!?])(?:[\s*_\"')]+(?=[^\W\d_a-z]|\Z)|\Z)|[;\u3002]")
_CLAUSE_END: Final = re.compile(
    r",? (?:because|since|which|so|but)\b|, (?:as|not|(?:and |or )?(?:we|I|it|this|that|therefore))\b|(?<=[\d%A-H]) \((?=[A-Za-z]{2})"
)
_MAY_GO_ON: Final = " \t\n.,*_`$)}]\\\"'"
_MOST: Final = 300
_LINES: Final = 3


class Cued(NamedTuple):
    """text: what is given. at: where it begins. ended: something follows it, so that it is not cut."""

    text: str
    at: int
    ended: bool


def cued(text: str, most: int) -> Iterator[Cued]:
    """What is given after each cue, the last first, of the last `most` of each word that may be one. Time: linear in the text."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a letter that has two lower-case ones: positions would not be the same
        lowered = text
    hits: list[tuple[int, str]] = []
    for word in _READERS:
        at = lowered.rfind(word)
        for _ in range(most):
            if at < 0:
                break
            hits.append((at, word))
            at = lowered.rfind(word, 0, at)
    for at, word in sorted(hits, reverse=True):
        found = _READERS[word](text, at, at + len(word))
        if found is not None:
            yield found


def first_clause(text: str) -> str:
    """What comes before reasons, remarks and further sentences."""
    sentence = _SENTENCE_END.search(text)
    end = sentence.start() if sentence is not None else len(text)
    clause = _CLAUSE_END.search(text, 1, end)
    return text[: clause.start() if clause is not None else end]


def last_sentence(line: str) -> int:
    """Where the last sentence of a line begins."""
    most = len(line.rstrip(" *_\"')"))
    return max((found.end() for found in _SENTENCE_END.finditer(line) if found.end() < most), default=0)


def _noun(text: str, at: int, end: int) -> Cued | None:
    """answer is .., Answer: .."""
    if _within_word(text, at):
        return None
    if text[at - 1 : at] == "<":
        tagged = _TAGGED.match(text, end)
        return None if tagged is None else Cued(tagged[1].strip(), tagged.start(1), True)
    heading = _HEADING.match(text, end)
    if heading is not None and text[text.rfind("\n", 0, at) + 1 : at].strip("#*_ ").lower() in _HEADED:
        return _value(text, heading.end())
    found = _NOUN.match(text, end)
    return None if found is None else _value(text, found.end())


def _foreign(text: str, _at: int, end: int) -> Cued | None:
    """The same in languages that do not part words, or decline them."""
    found = _FOREIGN.match(text, end)
    return None if found is None else _value(text, found.end())


def _final(text: str, at: int, end: int) -> Cued | None:
    """final: .., result = .."""
    found = None if _within_word(text, at) else _FINAL.match(text, end)
    return None if found is None else _value(text, found.end())


def _hashes(text: str, at: int, end: int) -> Cued | None:
    """#### 42, as GSM8K has it; other text there is a heading."""
    found = _HASHED.match(text, end) if text[at - 1 : at] in ("", "\n") else None
    return None if found is None else Cued(found[1].strip(), found.start(1), True)


def _chosen(text: str, at: int, end: int) -> Cued | None:
    """option B is correct"""
    for found in _CHOSEN.finditer(text, max(0, at - 40), end + 12):
        if found.end() == end:
            return Cued(found["letter"], found.start("letter"), True)
    return None


_Reader = Callable[[str, int, int], Cued | None]
_READERS: Final[Mapping[str, _Reader]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("answer", "correct option", "correct choice", "antwort", "antwoord", "l\u00f6sung", "ergebnis", "r\u00e9ponse"), _noun
        ),
        **dict.fromkeys(("respuesta", "resposta", "risposta", "odpowied\u017a", "cevap"), _noun),
        **dict.fromkeys(
            ("\u043e\u0442\u0432\u0435\u0442", "\u7b54\u6848", "\u7b54\u3048", "\u6b63\u89e3", "\uc815\ub2f5", "\ub2f5"), _foreign
        ),
        **dict.fromkeys(("final", "result"), _final),
        **dict.fromkeys(("is correct", "is right", "the correct", "the right", "the best"), _chosen),
        "####": _hashes,
    }
)


def _within_word(text: str, at: int) -> bool:
    return text[at - 1 : at].isalnum()


def _value(text: str, at: int) -> Cued | None:
    """The clause after a cue, or on the lines after it."""
    for _ in range(_LINES):
        end = text.find("\n", at)
        line = text[at : min(end if end >= 0 else len(text), at + _MOST)]
        lead = _LEADS.match(line)
        clause = line[lead.end() :] if lead is not None else line
        if _DENIED.match(clause):
            return None
        clause = first_clause(clause)
        if clause.strip(" \t*_`$:[]()\\\"'.,"):
            clause = clause.strip(" \t*_`").rstrip("!. *_`")
            return Cued(clause, at, not text[at:].rstrip(_MAY_GO_ON).endswith(clause.rstrip(_MAY_GO_ON)))
        if end < 0:
            return None
        at = end + 1
    return None
