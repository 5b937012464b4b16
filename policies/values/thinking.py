"""What an answer says apart from its thoughts, for reading only: what is delivered stays as it came.

Thoughts count as such where an engine or its template puts them, and not where an answer speaks of the tags:

    <think>..</think> said       at the start
    ..</think> said              the template has opened them, in the prompt
    said <newline> <think>..     at the start of a line: models that think again in between
    `<think>`, "</think>"        in quotes or backticks: words like any other, as is an opening tag within a line

Tags: those of DeepSeek, Qwen, GLM, MiniMax, Magistral, Seed-OSS, Kimi, Command, Apertus, Gemma, Granite and the OpenThinker family, and the
channels of gpt-oss (Harmony).
"""

from __future__ import annotations

from typing import Final

TAGS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>thought", "<channel|>"),
    ("<unused94>thought", "<unused95>"),
    ("Here is my thought process:", "Here is my response:"),
)
_QUOTES: Final = frozenset("`'\"\u2018\u2019\u201c\u201d")
_CHANNEL: Final = "<|channel|>"
_MESSAGE: Final = "<|message|>"


def spoken(text: str, opened: bool = False) -> str | None:
    """The text without its thoughts; None: they do not come to an end, so nothing has been said. opened: the prompt ended within thoughts
    that the engine leaves in the text, so all of it is thought until they end. Time: linear in the text."""
    if _CHANNEL in text:
        return _final_channel(text)
    start = len(text) - len(text.lstrip())
    for opens, closes in TAGS:
        if text.startswith(opens, start):
            end = _proper(text, closes, start + len(opens))
            return None if end < 0 else _again(text[end + len(closes) :])
    ends = [(end, opens, closes) for opens, closes in TAGS if (end := _proper(text, closes, 0)) >= 0]
    if ends:
        end, opens, closes = min(ends)
        begun = _proper(text, opens, 0)
        if opened or not 0 <= begun < end:
            return _again(text[end + len(closes) :])
    return None if opened else _again(text)


def _final_channel(text: str) -> str | None:
    """Harmony: what is on the channel `final`; other channels are thoughts and calls."""
    at = text.rfind(_CHANNEL + "final")
    if at < 0:
        return None
    begins = text.find(_MESSAGE, at)
    if begins < 0:
        return ""
    said = text[begins + len(_MESSAGE) :]
    for mark in ("<|end|>", "<|return|>", "<|start|>"):
        said = said.partition(mark)[0]
    return said


def _again(text: str) -> str | None:
    """The text without further blocks of thoughts, those that begin a line; None: the last of them is not closed."""
    for opens, closes in TAGS:
        if opens not in text:
            continue
        kept, at = [], 0
        while (begun := _at_line_start(text, opens, at)) >= 0:
            end = _proper(text, closes, begun + len(opens))
            if end < 0:
                return None
            kept.append(text[at:begun])
            at = end + len(closes)
        text = "".join((*kept, text[at:]))
    return text


def _proper(text: str, tag: str, start: int) -> int:
    """Where the tag stands next, not counting those in quotes; -1: nowhere."""
    at = text.find(tag, start)
    while at >= 0:
        end = at + len(tag)
        if not (text[at - 1 : at] in _QUOTES and text[end : end + 1] in _QUOTES):
            return at
        at = text.find(tag, end)
    return -1


def _at_line_start(text: str, tag: str, start: int) -> int:
    at = text.find(tag, start)
    while at >= 0:
        if at == start or text[at - 1] in "\r\n" or not text[max(start, at - 80) : at].strip():
            return at
        at = text.find(tag, at + len(tag))
    return -1
