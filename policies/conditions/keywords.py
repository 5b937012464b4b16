"""Words and phrases, found literally: in time linear in the text, whatever is looked for.

Case is folded unless it matters (`ß` is `ss`), compatibility forms always are (`ﬁ` is `fi`). A keyword is found as a whole word: where its
edge is a letter, no other may touch it, so `art` is not in `party`; scripts that write without spaces have no such edges, so `天気` is in
`今日の天気は`. White space within a phrase matches any. Nobody's pattern is run: every keyword is escaped.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

# Thai to Myanmar (with Tibetan, harmlessly), Khmer, kana, Han, Hangul (particles follow a noun at once), compatibility Han.
_SPACELESS = "\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LETTER = rf"[^\W{_SPACELESS}]"
_WORDS = re.compile(f"{_LETTER}+")


def folded(text: str, case: bool = False) -> str:
    """The text as it is compared. case: whether it matters."""
    text = unicodedata.normalize("NFKC", text)
    return text if case else unicodedata.normalize("NFKC", text.casefold())


def words(text: str) -> frozenset[str]:
    """The words of a folded text."""
    return frozenset(_WORDS.findall(text))


class Keywords:
    """sought: to be found; none of them blank. every: all of them must be there, else one is enough. case: whether it matters."""

    def __init__(self, sought: Sequence[str], every: bool = False, case: bool = False) -> None:
        entries = {folded(each, case) for each in sought}
        # What is one word is looked up among the text's words, all at once; the rest is searched for.
        self._words = frozenset(each.strip() for each in entries if _WORDS.fullmatch(each.strip()))
        self._phrases = [_phrase(each) for each in sorted(entries) if each.strip() not in self._words]
        self._every = every

    def found(self, text: str, among: frozenset[str]) -> bool:
        """Whether they are in a text that is folded as they are. among: its words."""
        if self._every:
            return self._words <= among and all(start in text and pattern.search(text) for start, pattern in self._phrases)
        return not self._words.isdisjoint(among) or any(start in text and pattern.search(text) for start, pattern in self._phrases)


def _phrase(entry: str) -> tuple[str, re.Pattern[str]]:
    """The first part, and a pattern of the whole that begins with it: the fastest thing to look for."""
    parts = entry.split()
    start = re.escape(parts[0])
    before = rf"(?<!{_LETTER}{start})" if _WORDS.match(parts[0]) else ""
    after = rf"(?!{_LETTER})" if _WORDS.match(parts[-1][-1]) else ""
    return parts[0], re.compile(r"\s+".join((start + before, *map(re.escape, parts[1:]))) + after)
