r"""Numbers as people and models write them, as exact rationals.

    1234   1,234.5   1,234,567   1 234   1.234,5   .5   -3/4   3 1/2   \frac{1}{2}   \frac12   1e3   1.5 * 10^{-3}
    25 %   is 25/100: a share and its percentage are one number
    $5, 5 EUR, 35 cm, 90 degrees, 18 apples   are 5, 35, 90 and 18: what stands beside a number is not looked at
    3 million   is 3000000

1,234 may be 1234 or, where the comma marks decimals, 1.234: its value is given as 1234, and said to be in doubt. With a currency it is not,
for no price has three decimals. 1,5 and 1,23 may be lists: no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

_DECIMAL: Final = (
    r"(?:(?P<commas>\d{1,3}(?:,\d{3})+(?:\.\d+)?)(?![\d,])"
    r"|(?P<spaces>\d{1,3}(?: \d{3})+(?:\.\d+)?)(?!\d)"
    r"|(?P<points>\d{1,3}(?:\.\d{3})+,\d+)(?!\d)"
    r"|(?P<simple>\d+(?:\.\d+)?|\.\d+)(?!\d))"
)
_SIMPLE: Final = r"(?:\d+(?:\.\d+)?|\.\d+)"
_PART: Final = rf"(?:\{{\s*([+-]?\s*{_SIMPLE})\s*\}}|(\d))"
_FRACTION: Final = re.compile(rf"(?:(?P<whole>\d+) ?)?\\frac ?{_PART} ?{_PART}")
_SLASH: Final = re.compile(rf"(?:(?P<whole>\d+) )?({_SIMPLE}) ?/ ?([+-]?{_SIMPLE})(?![\d.,])")
_NUMBER: Final = re.compile(_DECIMAL)
_POWER: Final = re.compile(r"[eE]([+-]?\d{1,3})(?![\d.])| ?[*x\u00d7\u00b7] ?10 ?\^ ?(?:\{ ?([+-]?\d{1,3}) ?\}|([+-]?\d{1,3})(?![\d.]))")
_BEFORE: Final = re.compile(r"(?P<sign>[+-]?) ?(?P<currency>USD|EUR|GBP|[$\u20ac\u00a3\u00a5\u20b9])? ?(?P<after>[+-]?) ?(?=[\d.\\])")
_PERCENT: Final = re.compile(r" ?(?:%|percent\b|per cent\b|pct\b)", re.IGNORECASE)
_MAGNITUDE: Final = re.compile(r" ?(hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_MAGNITUDES: Final[Mapping[str, int]] = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_UNITS: Final = (
    r"mm|cm|dm|km|nm|um|mi|ft|in|yd|mg|kg|lb|lbs|oz|ml|cl|kl|ms|min|hr|hrs|sec|Hz|kHz|MHz|GHz|kW|MW|kWh|mol|eV|Pa|kPa|GB|MB|KB|kB|TB"
    r"|mph|kph|USD|EUR|GBP|rad|deg|m|g|s|h|L|l|N|J|W|V|A|K"
)
_MEASURE: Final = rf"(?:(?:{_UNITS})(?:(?: ?\^ ?|\*\*)?\{{?-?[1-4]\}}?)?)"
_CURRENCY: Final = re.compile(r" ?(?:[$\u20ac\u00a3\u00a5\u20b9]|USD|EUR|GBP|dollars?|euros?|pounds?|cents?)(?![^\W\d_])", re.IGNORECASE)
_TAIL: Final = re.compile(
    rf"(?: ?\u00b0 ?(?:[CFK]|degrees?)?"
    rf"| ?{_MEASURE}(?: ?[/*\u00b7] ?{_MEASURE}){{0,3}}"
    r"| (?P<words>[^\W\d_]{2,24}(?:[ /-][^\W\d_]{1,24}){0,3}(?:\^\{?[1-4]\}?)?))"
)
_NO_UNITS: Final = frozenset(
    (
        *("am", "pm", "bc", "ad", "bce", "ce", "pi", "sqrt", "root", "roots", "infinity", "infty", "log", "sin", "cos", "tan"),
        *("plus", "minus", "times", "divided", "over", "mod", "remainder", "and", "or", "to", "not", "less", "more", "than"),
    )
)
_MOST_DIGITS: Final = 400


class Number(NamedTuple):
    """value: exact. doubtful: its comma may mark thousands, as it was read, or decimals."""

    value: Fraction
    doubtful: bool = False

    @property
    def otherwise(self) -> Fraction:
        """The value if the comma of a doubtful number marks decimals."""
        return self.value / 1000


def number(text: str) -> Number | None:
    """The number that a whole text is, a plain one (plain.py); None: it is something else, or has more than 400 characters."""
    if not text or len(text) > _MOST_DIGITS:
        return None
    before = _BEFORE.match(text)
    if before is None or (before["sign"] and before["after"]):
        return None
    negative = "-" in (before["sign"], before["after"])
    read = _magnitude(text, before.end())
    if read is None:
        return None
    value, at, doubtful = read
    power = _POWER.match(text, at)
    if power is not None:
        value *= Fraction(10) ** int(power[1] or power[2] or power[3])
        at = power.end()
    named = _MAGNITUDE.match(text, at)
    if named is not None:
        value *= 10 ** _MAGNITUDES[named[1].lower()]
        at = named.end()
    priced = before["currency"] is not None
    percent = _PERCENT.match(text, at)
    if percent is not None:
        value /= 100
        at = percent.end()
    elif (currency := _CURRENCY.match(text, at)) is not None:
        priced = True
        at = currency.end()
    if not _only_units(text, at):
        return None
    return Number(-value if negative else value, doubtful and not priced)


def _magnitude(text: str, at: int) -> tuple[Fraction, int, bool] | None:
    """A number without sign, where it ends, and whether it is in doubt."""
    fraction = _FRACTION.match(text, at)
    if fraction is not None:
        parts = [part.replace(" ", "") for part in fraction.groups()[1:] if part is not None]
        return _quotient(fraction["whole"], parts[0], parts[1], fraction.end())
    slash = _SLASH.match(text, at)
    if slash is not None:
        return _quotient(slash["whole"], slash[2], slash[3], slash.end())
    found = _NUMBER.match(text, at)
    if found is None:
        return None
    if found["commas"] is not None:
        digits = found["commas"].replace(",", "")
        if digits.startswith("0"):
            return None
        return Fraction(digits), found.end(), found["commas"].count(",") == 1 and "." not in digits
    digits = (found["spaces"] or "").replace(" ", "") or (found["points"] or "").replace(".", "").replace(",", ".") or found["simple"]
    return Fraction(digits), found.end(), False


def _quotient(whole: str | None, above: str, below: str, end: int) -> tuple[Fraction, int, bool] | None:
    divisor = Fraction(below)
    if divisor == 0:
        return None
    value = Fraction(above) / divisor
    if whole is not None:
        if not 0 < value < 1:
            return None
        value += int(whole)
    return value, end, False


def _only_units(text: str, at: int) -> bool:
    """Whether nothing but units, or up to four words, follows."""
    if at == len(text):
        return True
    tail = _TAIL.fullmatch(text, at)
    if tail is None:
        return False
    words = tail["words"]
    return words is None or words == "times" or _NO_UNITS.isdisjoint(words.lower().replace("/", " ").replace("-", " ").split())
