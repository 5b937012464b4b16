r"""When two answers are the same: canonical keys, which are equal or not.

    number       exact rationals: 0.5, .50, 1/2, \frac12 and 50 % are one number; 0.333 and 1/3 are not. Units are not looked at
    doubtful     1,234: thousands, or decimals; `joined` decides it where the other answers do
    letter       of the options, whatever its case
    list         (1, 2), [1, 2), {2, 1}: as a whole, and braces in any order; "1331 and 1728" is not "1728"
    expression   other mathematics, without white space; its case counts
    json         an object: in any order of its names, 1 and 1.0 alike
    text         words without case, punctuation and the article before them (Unicode NFKC)

So what is merged is the same by form; what is the same only by algebra stays apart, until somebody asks `merged` with a slow check
(algebra.py).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias

from policies.answers.canonical_json import Unreadable, canonical
from policies.answers.numbers import Number, number
from policies.answers.plain import plain

Kind: TypeAlias = Literal["number", "doubtful", "letter", "list", "expression", "json", "text", "tool_calls"]
Wanted: TypeAlias = Literal["any", "number", "letter", "text"]
"""What answers are expected to be. number: or a list or an expression. text: never a letter of options."""
Verdict: TypeAlias = Literal["equal", "different", "unknown"]

OPTIONS: Final = "ABCDEFGH"
"""The letters of options where the question's are not known. I is not among them: it is a word."""
MOST_COMPARISONS: Final = 24
_LONGEST: Final = 200
_READ: Final = 1_000

_LETTER: Final = re.compile(r"[(\[{]?([A-Za-z])[)\]}.:]*")
_LETTER_FIRST: Final = re.compile(
    r"(?:option |choice |letter )?"
    r"(?:\(([a-z])\)[:.,]?(?: |\Z)|([a-z])(?:[).:,]+ |[).:,]*\Z| (?:-|because|since|as|which)(?!\w)))"
    r"(?! ?is (?:wrong|incorrect|false|not)\b| ?isn't)",
    re.IGNORECASE,
)
_EQUALS: Final = re.compile(r"(?<![<>!=:\u2264\u2265\u2260])=(?![=<>])")
_NAMED: Final = re.compile(
    r"\\?[A-Za-z]{0,12}(?:_\{?\w\}?)?(?:\([^()]{0,12}\))?'?"  # x, \theta, f(x), a_1
    r"|[^A-Za-z\\]*"  # 7 + 5
    r"|(?:[^A-Za-z\\^]|(?<![A-Za-z\d])[A-Za-z]{2,}(?![A-Za-z\d]))*"  # 7 apples + 5 apples, the sum
)
_SEVERAL: Final = re.compile(r";|,(?!\d{3})|\band\b|\bor\b")
_MATHS: Final = re.compile(
    r"[\\^=+*<>|{}_\u03c0\u2200-\u22ff]|[\d)]\s?/|/\s?[\d(]|\b\w\s?-\s?\w\b|\d[A-Za-z]\b|[\w)]\(|(?:\d|\)|\b\w)!|[(\[] ?[-+\d.]+ ?,"
)
_BRACKETS: Final[Mapping[str, str]] = {"(": ")]", "[": ")]", "{": "}"}
_SIZING: Final = re.compile(r"\\(?:left|right)(?![A-Za-z]) ?")
_ARTICLE: Final = re.compile(r"(?:the|an?) (?=\S)")
_MARK: Final = re.compile(r"[^\w\s#&%$\u20ac\u00a3\u00b0]|_")
_DELETED: Final = frozenset("'.")


class Key(NamedTuple):
    """Equal for answers that are the same. kind: what the answer is. value: canonical text, at most 200 characters; longer ones are told
    apart by their digest."""

    kind: Kind
    value: str


Equal: TypeAlias = Callable[[str, str], Verdict]
"""Whether two answers, as they were written, are the same. May be slow, and need not know."""


def key(text: str, wanted: Wanted = "any", options: str = OPTIONS) -> Key | None:
    """The key of a short text, such as extraction.py finds; None: it says nothing, or not what is wanted. options: letters, upper case. Of
    a text of more than 1,000 characters no number or list is read. Time: linear in the text."""
    bare = plain(text)
    if wanted in ("any", "letter"):
        letter = _letter(bare, options)
        if letter is not None or wanted == "letter":
            return letter
    if text.lstrip().startswith("{") and (described := _object(text)) is not None:
        return described if wanted != "number" else None
    if len(text) <= _READ:
        found = _braced(text) or _numeric(bare) or _listed(bare)
        if found is not None:
            return found
    if _MATHS.search(bare, 0, _READ):
        return _key("expression", "".join(bare.split()))
    return None if wanted == "number" else _words(bare)


def _letter(bare: str, options: str) -> Key | None:
    found = _LETTER.fullmatch(bare) or _LETTER_FIRST.match(bare)
    if found is None:
        return None
    letter = next(each for each in found.groups() if each)
    # "a car", "I am": a word, unless it is all there is or brackets mark it.
    if not letter.isupper() and len(bare) > 1 and f"{letter})" not in bare[:12]:
        return None
    return Key("letter", letter.upper()) if letter.upper() in options else None


def _numeric(bare: str) -> Key | None:
    read = number(bare)
    if read is None and "=" in bare and not _SEVERAL.search(bare):
        *named, last = (part.strip() for part in _EQUALS.split(bare))
        if named and all(_NAMED.fullmatch(part) for part in named):  # not 5x - 7y = 0: an equation is no number
            read = number(last)
    return None if read is None else _key("doubtful" if read.doubtful else "number", str(read.value))


def _listed(bare: str) -> Key | None:
    """Several numbers, with brackets or without, in their order."""
    if len(bare) < 3:
        return None
    bracketed = bare[-1] in _BRACKETS.get(bare[0], "")
    begins, inner, ends = (
        (bare[0], bare[1:-1], bare[-1]) if bracketed else ("", bare.replace(", and ", ", ").replace(" and ", ", ").replace(",-", ", -"), "")
    )
    if not bracketed and ", " not in inner:
        return None
    items: list[Fraction] = []
    for part in inner.split(", " if ", " in inner else ","):
        read = number(part.strip())
        if read is None or read.doubtful:
            return None
        items.append(read.value)
    if begins == "{":
        items = sorted(set(items))
    elif len(items) < 2 or number(inner) is not None:
        return None
    return _key("list", f"{begins}{', '.join(map(str, items))}{ends}")


def _braced(text: str) -> Key | None:
    r"""\{1, 2\}: a set."""
    if "\\{" not in text:
        return None
    inner = _SIZING.sub("", text.strip(" $"))
    if not (inner.startswith("\\{") and inner.endswith("\\}")):
        return None
    return _listed("{" + plain(inner[2:-2]) + "}")


def _object(text: str) -> Key | None:
    try:
        return _key("json", canonical(text))
    except Unreadable:
        return None


def _words(bare: str) -> Key | None:
    words = _ARTICLE.sub("", bare.casefold(), count=1) if _ARTICLE.match(bare.casefold()) else bare.casefold()
    words = " ".join(_MARK.sub(_without, words).split())
    return _key("text", words) if words else None


def _without(mark: re.Match[str]) -> str:
    """What is left of a mark: within a number, and the sign of one, it means something."""
    text, at = mark.string, mark.start()
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    if after.isdigit() and (before.isdigit() or (mark[0] in "-." and not before.isalnum())):
        return mark[0]
    return "" if mark[0] in _DELETED else " "


def _key(kind: Kind, value: str) -> Key:
    return Key(kind, digested(value))


def digested(value: str) -> str:
    """A value as keys hold it: as it is up to 200 characters, else its digest."""
    return value if len(value) <= _LONGEST else "#" + hashlib.blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def joined(keys: Sequence[Key | None]) -> list[Key | None]:
    """The keys of one question's answers, with numbers in doubt decided where the others do it: 1,234 is 1234 where somebody says 1234 and
    nobody 1.234; else it stays a key of its own."""
    known = {each.value for each in keys if each is not None and each.kind == "number"}

    def decided(each: Key | None) -> Key | None:
        if each is None or each.kind != "doubtful" or each.value not in known or each.value.startswith("#"):
            return each
        as_decimals = Number(Fraction(each.value), doubtful=True).otherwise
        return each if str(as_decimals) in known else Key("number", each.value)

    return [decided(each) for each in keys]


def merged(keys: Sequence[Key | None], texts: Sequence[str], equal: Equal, most: int = MOST_COMPARISONS) -> list[Key | None]:
    """The keys with those made one whose answers a slow check calls equal. texts: what each answer says. It is asked at most so many times,
    of one text for each key, the most frequent keys first, and only where one of the two is an expression and the other no words: numbers
    and lists are what their keys say. Call it off the event loop if `equal` takes long."""
    counts = Counter(each for each in keys if each is not None)
    first: dict[Key, str] = {}
    for each, text in zip(keys, texts, strict=True):
        if each is not None:
            first.setdefault(each, text)
    standing: list[Key] = []
    stands_for: dict[Key, Key] = {}
    for each, _ in counts.most_common():
        same = None
        for other in standing:
            if not _comparable(each, other):
                continue
            if most <= 0:
                break
            most -= 1
            if equal(first[other], first[each]) == "equal":
                same = other
                break
        if same is None:
            standing.append(each)
        stands_for[each] = same or each
    return [None if each is None else stands_for[each] for each in keys]


_ALGEBRA: Final[Mapping[Kind, int]] = {"expression": 2, "list": 1, "number": 1, "doubtful": 1}


def _comparable(one: Key, other: Key) -> bool:
    grades = (_ALGEBRA.get(one.kind, 0), _ALGEBRA.get(other.kind, 0))
    return min(grades) > 0 and max(grades) > 1
