"""What can be asked of a request, as it is configured: one question to a signal.

    code:   {keywords: [traceback, "c++"], match: any, case: false}
    maths:  {similar_to: ["Solve for x: 3x + 2 = 8"], above: 0.55, encoder: static}
    german: {language: [de]}
    long:   {tokens: {above: 4000}}             also `turns`, `max_tokens`; `below`; neither takes in its own limit
    agent:  {tools: true}                       also tool_loop, json_schema, logprobs, images, audio
    vip:    {tenant: [acme]}
    search: {tag: {team: search}}               all of these tags; a list of values: one of them

Every turn counts, not only the last one. `roles` says whose: by default keywords are sought in what the user and the system prompt say,
and language and similarity are those of the user's turns (of all turns where the user said nothing): a system prompt is often in another
language than its user, and the same for every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Literal

import msgspec

from policies.conditions.language import LANGUAGES

KINDS = (
    *("keywords", "similar_to", "language", "tokens", "turns", "max_tokens"),
    *("tools", "tool_loop", "json_schema", "logprobs", "images", "audio", "tenant", "tag"),
)
FLAGS = frozenset({"tools", "tool_loop", "json_schema", "logprobs", "images", "audio"})
RANGES = frozenset({"tokens", "turns", "max_tokens"})

# What goes with a kind, and with no other.
_EXTRAS: Mapping[str, frozenset[str]] = {
    "keywords": frozenset({"match", "case", "roles"}),
    "similar_to": frozenset({"above", "encoder", "roles"}),
    "language": frozenset({"roles"}),
}


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers greater than `above` and less than `below`."""

    above: int | None = None
    below: int | None = None

    def holds(self, number: float | None) -> bool:
        """Whether a number is in it; one that is not there is in none."""
        return number is not None and (self.above is None or number > self.above) and (self.below is None or number < self.below)


class Signal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Exactly one of KINDS is set. match, case, roles: of keywords. above, encoder, roles: of similar_to; `above` is a cosine. roles: of
    language."""

    keywords: list[str] | None = None
    similar_to: list[str] | None = None
    language: list[str] | None = None
    tokens: Range | None = None
    turns: Range | None = None
    max_tokens: Range | None = None
    tools: bool | None = None
    tool_loop: bool | None = None
    json_schema: bool | None = None
    logprobs: bool | None = None
    images: bool | None = None
    audio: bool | None = None
    tenant: list[str] | None = None
    tag: dict[str, str | list[str]] | None = None
    match: Literal["any", "all"] | None = None
    case: bool | None = None
    above: float | None = None
    encoder: str | None = None
    roles: list[str] | None = None

    @property
    def kind(self) -> str:
        """Which of KINDS it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def threshold(self) -> float:
        """What the number that was measured must exceed."""
        return 0.5 if self.similar_to is None else 0.55 if self.above is None else self.above

    @property
    def measured(self) -> dict[str, Any]:
        """What its number depends on: all of it but the threshold, which is applied when a rule is read."""
        found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, above=None))
        return found

    @property
    def tags(self) -> dict[str, frozenset[str]]:
        """Accepted values by tag."""
        return {key: frozenset({value} if isinstance(value, str) else value) for key, value in (self.tag or {}).items()}


def problems(signals: Mapping[str, Signal]) -> list[str]:
    """What of the signals cannot work, as sentences."""
    return [f"the signal `{name}` {each}" for name, signal in signals.items() for each in _problems(signal)]


def meant(name: str, known: Mapping[str, Any] | list[str]) -> str:
    """A hint at the name that was probably meant, or none."""
    near = get_close_matches(name, list(known), 1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _problems(signal: Signal) -> list[str]:
    given = {field for field in signal.__struct_fields__ if getattr(signal, field) is not None}
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1:
        return [f"must ask one question, not {len(kinds)}: one of {', '.join(KINDS)}"]
    (kind,) = kinds
    stray = sorted(given - {kind} - _EXTRAS.get(kind, frozenset()))
    found = [f"has `{each}`, which means nothing for `{kind}`" for each in stray]
    value = getattr(signal, kind)
    if isinstance(value, list | dict):
        entries = [each for key, values in signal.tags.items() for each in (key, *values)] if kind == "tag" else value
        if not value or (kind == "tag" and not all(signal.tags.values())):
            found.append(f"has nothing in `{kind}`")
        elif not all(each.strip() for each in entries):
            found.append(f"has a blank entry in `{kind}`")
    if kind == "language":
        known = sorted(LANGUAGES)
        found += [f"asks for the language `{each}`{_hint(each)}; it can tell {', '.join(known)}" for each in value if each not in LANGUAGES]
    if kind in RANGES:
        found += _range_problems(kind, value)
    if kind == "similar_to" and not -1 <= signal.threshold < 1:
        found.append("has an `above` that is no cosine: it must be at least -1 and less than 1")
    if signal.roles == []:
        found.append("has no roles in `roles`, so it would read nothing")
    return found


def _hint(code: str) -> str:
    """People write `de-AT`, `DE`."""
    short = code.lower().replace("_", "-").split("-")[0]
    return f" (write `{short}`)" if short in LANGUAGES else ""


def _range_problems(kind: str, limits: Range) -> list[str]:
    if limits.above is None and limits.below is None:
        return [f"says neither `above` nor `below` in `{kind}`"]
    least = 0 if limits.above is None else max(0, limits.above + 1)
    if limits.below is not None and limits.below <= least:
        return [f"asks for `{kind}` that no number meets"]
    return []
