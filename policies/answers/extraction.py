r"""What an answer says in the end, where it says so: the text that is voted on. The answer itself is delivered as it came.

Looked at, in this order, in what is said apart from thoughts (thinking.py), and of that in the last 4,096 characters only:

    whole    the reply is a JSON object, or nothing but a number or the letter of an option
    boxed    the last complete \boxed{..}; one that is not closed, where none is complete, means that the answer was cut
    cued     the last "answer is ..", "Answer: ..", "#### 42", <answer>..</answer>, "option B is correct", in a dozen languages; a number or
             a letter after a box that holds neither goes before the box
    line     "Yes, .." at the beginning; what the last line says: a number, a letter, "7 + 5 = 12", "So Tom has 18 apples.", "The capital is
             Paris.", something in bold
    whole    a reply of one line

Anything else says nothing that could be compared: such an answer abstains. An answer that was cut says only what was boxed, or cued with
something after it: "the answer is 12" may have been on the way to 123.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from policies.answers.boxes import boxes
from policies.answers.cues import cued, first_clause, last_sentence
from policies.answers.equivalence import OPTIONS, Key, Wanted, key
from policies.answers.plain import normal
from policies.values.thinking import spoken

TAIL: Final = 4_096
"""Characters at the end of what is said that are looked at."""
LONGEST_TEXT: Final = 200
"""Characters of a text, neither number nor letter, that still is an answer to be compared."""
How: TypeAlias = Literal["boxed", "cued", "line", "whole"]


class Found(NamedTuple):
    """text: the answer as it is written, without what is around it. key: what it is the same as (equivalence.py). how: where it was."""

    text: str
    key: Key
    how: How


def extract(text: str, wanted: Wanted = "any", options: str = OPTIONS, *, cut: bool = False, opened: bool = False) -> Found | None:
    """What an answer says; None: nothing that can be compared. options: the letters of the question's options, upper case. cut: the answer
    was stopped by its length. opened: the prompt ended within thoughts that the engine leaves in the text. White space at the end changes
    nothing. Time: linear in the text, and little of it but for the tail."""
    said = spoken(text, opened)
    if said is None:
        return None
    said = said.strip()
    if not said:
        return None
    tail = normal(said[-TAIL:]).replace("\r\n", "\n").replace("\r", "\n")
    reading = _Reading(wanted, options)
    whole = None if cut or len(said) > TAIL else reading.bare(tail)
    if whole is not None:
        return whole
    marked = _marked(tail, reading, cut)
    if marked is not None or cut:
        return marked[0] if marked is not None else None
    return _unmarked(tail, len(said) <= TAIL, reading)


_TYPED: Final = frozenset(("number", "doubtful", "letter", "list"))
_TRIES: Final = 8
_MOST_SENTENCE: Final = 400
_MOST_WORDS: Final = 3
_BARE: Final = re.compile(
    r"[*_`$(\[{\\ ]{0,8}(?:[A-Za-z][)\]}.,*_`$\\ ]{0,8}|[-+.]{0,2}\d[-\d.,/ eE+%$)\]}*_`\\]{0,60})",
)
_FENCE: Final = re.compile(r"\A```\w{0,20}\n([\s\S]*)\n```\Z")
_DECORATION: Final = re.compile(r"^(?:[>#*+-]+ |\d{1,3}[.)] )? *")
_BOLD: Final = re.compile(r"\*\*([^*\n]{1,200})\*\*[.!]?")
_VERDICT: Final = re.compile(r"(?:yes|no|true|false)(?=[,.:;!])", re.IGNORECASE)
_CONCLUDES: Final = re.compile(
    r"(?:therefore|thus|hence|so|consequently|overall|finally|altogether|in total|in conclusion|deshalb|also|donc|por lo tanto|quindi)\b",
    re.IGNORECASE,
)
_LABELLED: Final = re.compile(r"[^\W\d_][^:,.=\n]{1,30}: (?P<value>[^:\n]{1,80})")
_COPULA: Final = re.compile(r"[^,;:]{1,200} (?:is|are|was|equals|ist|est|es|=) (?P<value>[^\n]{1,80})")
_NOT_A_VALUE: Final = re.compile(r"(?:the|an?|not|no|that|this|it|to|in|of)\b", re.IGNORECASE)
_NUMERAL: Final = re.compile(
    r"(?<![\w.,/])-?[$\u20ac\u00a3]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?(?:[eE][+-]?\d{1,3})?\s?%?(?![\w/]|[.,]\d)"
)


class _Reading(NamedTuple):
    """How answers are to be read."""

    wanted: Wanted
    options: str

    def of(self, text: str, how: How) -> Found | None:
        """As an answer of any kind that is wanted."""
        found = key(text, self.wanted, self.options)
        if found is None or (found.kind == "text" and len(text) > LONGEST_TEXT):
            return None
        return Found(text, found, how)

    def bare(self, text: str) -> Found | None:
        """A whole reply that is nothing but the answer."""
        if not text.startswith(("{", "```")) and not _BARE.fullmatch(text):
            return None
        found = self.of(_unfenced(text), "whole")
        return found if found is not None and found.key.kind in ("json", *_TYPED) else None


def _unfenced(text: str) -> str:
    fenced = _FENCE.match(text)
    return fenced[1].strip() if fenced is not None else text


def _marked(tail: str, reading: _Reading, cut: bool) -> tuple[Found | None] | None:
    """What is boxed or cued; (None,): there is a box, and it was cut. None: nothing is."""
    found_boxes = boxes(tail)
    boxed: Found | None = None
    end = 0
    for box in reversed(found_boxes.complete[-_TRIES:]):
        boxed = reading.of(box.content, "boxed")
        end = box.end
        if boxed is not None or reading.wanted == "any":
            break
    if boxed is None and found_boxes.unclosed and not found_boxes.complete:
        return (None,)
    if boxed is not None and boxed.key.kind in _TYPED:
        return (boxed,)
    for cue in cued(tail, _TRIES):
        if cut and not cue.ended:
            continue
        if boxed is not None and cue.at < end:
            break
        found = reading.of(cue.text, "cued")
        if found is not None and (boxed is None or found.key.kind in _TYPED):
            return (found,)
    return (boxed,) if boxed is not None else None


def _unmarked(tail: str, complete: bool, reading: _Reading) -> Found | None:
    """What the first word of a verdict or the last line says."""
    lines = [line for line in (each.strip() for each in tail.split("\n")) if line and line.strip("`*_-=#>$[]\\ ")]
    if not lines:
        return None
    verdict = _VERDICT.match(tail) if complete and reading.wanted in ("any", "text") else None
    if verdict is not None:
        return reading.of(verdict[0], "line")
    last = _DECORATION.sub("", lines[-1][-_MOST_SENTENCE:], count=1)
    single = complete and len(lines) == 1 and len(lines[0]) <= _MOST_SENTENCE
    for value in _values(last, single, reading.wanted):
        found = reading.of(value, "line")
        if found is not None:
            return found
    if reading.wanted == "number":
        return _last_numeral(lines, reading)
    if (single or reading.wanted == "text") and not last.endswith(":"):
        return reading.of(last, "whole")
    return None


def _values(last: str, single: bool, wanted: Wanted) -> Iterator[str]:
    """What the last line may say, the surest first."""
    bold = _BOLD.fullmatch(last)
    if bold is not None:
        yield bold[1].strip(" :")
    bare = last.replace("**", "").strip().rstrip(".! ")
    sentence = bare[last_sentence(bare) :].strip()
    labelled = _LABELLED.fullmatch(bare) if single else None
    if labelled is not None and len(labelled["value"].split()) <= _MOST_WORDS:
        yield labelled["value"]
    if _lone(sentence, single):
        yield sentence
    concludes = _CONCLUDES.match(sentence)
    if concludes is not None or (single and sentence == bare):
        said = sentence if concludes is None else sentence[concludes.end() :].lstrip(", ")
        copula = _COPULA.fullmatch(said)
        value = first_clause(copula["value"]).strip() if copula is not None else ""
        if value and not _NOT_A_VALUE.match(value) and len(value.split()) <= _MOST_WORDS:
            yield value
    if concludes is not None and wanted != "text":
        numerals = _NUMERAL.findall(sentence)
        if len(numerals) == 1:
            yield numerals[0]


def _lone(sentence: str, single: bool) -> bool:
    """Whether a line is nothing but a number or a letter, or an equation, or one that begins with the letter of an option."""
    if _BARE.fullmatch(sentence):
        return single or not sentence.isalpha() or sentence.isupper()
    return "=" in sentence or (single and sentence[:3].lstrip("(")[1:2] in (")", "."))


def _last_numeral(lines: list[str], reading: _Reading) -> Found | None:
    for line in reversed(lines[-_TRIES:]):
        numerals = _NUMERAL.findall(line)
        if numerals:
            return reading.of(numerals[-1], "line")
    return None
