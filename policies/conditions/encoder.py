"""The signals of a rule set as features: one number for each signal, so that a decision can be made again from what was logged.

    z_i = 1 where signal i holds, else 0;    for similarity: max over the examples e of cos(x, e), 0 without text

The name holds a digest of the questions (not of the thresholds of similarity, which are applied to the numbers): a block that was logged
under other questions is never taken for this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from policies.conditions.keywords import Keywords, folded, words
from policies.conditions.language import language
from policies.conditions.signal import FLAGS, Signal
from policies.policy import Encoder
from policies.values.prompt import Prompt, Turn

if TYPE_CHECKING:
    from policies.values.situation import Vector

VERSION = 1
"""Of how signals are measured: raised whenever the same question may give another number."""

_SAID = ("system", "developer", "user")
_ASKED = ("user",)


class Reading:
    """A prompt while it is read: each text is joined, folded and embedded once, however many signals ask."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self._texts: dict[tuple[tuple[str, ...], bool], tuple[str, frozenset[str]]] = {}
        self._languages: dict[tuple[str, ...], str] = {}
        self._embedded: dict[tuple[str, tuple[str, ...]], Vector] = {}

    def said(self, roles: tuple[str, ...], case: bool) -> tuple[str, frozenset[str]]:
        """What these roles said, folded, and its words; no phrase reaches from one turn into the next."""
        key = (roles, case)
        if key not in self._texts:
            text = folded("\0".join(turn.text for turn in self.prompt.turns if turn.role in roles), case)
            self._texts[key] = (text, words(text))
        return self._texts[key]

    def language(self, roles: tuple[str, ...]) -> str:
        """See policies.conditions.language."""
        if roles not in self._languages:
            self._languages[roles] = language([turn.text for turn in self._turns(roles)])
        return self._languages[roles]

    def embedded(self, encoder: Encoder, roles: tuple[str, ...]) -> Vector:
        """float32, of length 1; 0 without text."""
        key = (encoder.name, roles)
        if key not in self._embedded:
            turns = self._turns(roles)
            self._embedded[key] = _unit(encoder, msgspec.structs.replace(self.prompt, turns=turns))
        return self._embedded[key]

    def _turns(self, roles: tuple[str, ...]) -> tuple[Turn, ...]:
        said = tuple(turn for turn in self.prompt.turns if turn.role in roles and turn.text.strip())
        return said or tuple(turn for turn in self.prompt.turns if turn.text.strip())


class Signals:
    """signals: valid ones (policies.conditions.signal.problems finds none), by name. encoder: of embeddings, by name; raises ValueError for
    one that cannot be had."""

    def __init__(self, signals: Mapping[str, Signal], encoder: Callable[[str], Encoder]) -> None:
        kinds = {each.encoder or "static" for each in signals.values() if each.similar_to is not None}
        encoders = {each: encoder(each) for each in sorted(kinds)}
        versions = {each: made.name for each, made in encoders.items()}
        measured = {name: signal.measured for name, signal in signals.items()}
        content = msgspec.json.encode([VERSION, list(measured.items()), versions], order="sorted")
        self.name = f"rules-{hashlib.sha256(content).hexdigest()[:8]}"
        self.dim = len(signals)
        self.slow = any(each.slow for each in encoders.values())
        self._measures = [_measure(each, encoders) for each in signals.values()]

    def encode(self, prompt: Prompt) -> Vector:
        """float32, (signals,), in the order of the configuration."""
        import numpy as np

        reading = Reading(prompt)
        return np.array([measure(reading) for measure in self._measures], dtype=np.float32)


def _measure(signal: Signal, encoders: Mapping[str, Encoder]) -> Callable[[Reading], float]:
    kind, value = signal.kind, getattr(signal, signal.kind)
    if kind == "keywords":
        roles, case = tuple(signal.roles or _SAID), bool(signal.case)
        keywords = Keywords(value, signal.match == "all", case)
        return lambda reading: float(keywords.found(*reading.said(roles, case)))
    if kind == "language":
        asked, codes = tuple(signal.roles or _ASKED), frozenset(value)
        return lambda reading: float(reading.language(asked) in codes)
    if kind == "similar_to":
        return _similarity(encoders[signal.encoder or "static"], value, tuple(signal.roles or _ASKED))
    if kind == "tenant":
        return lambda reading: float(reading.prompt.tenant in value)
    if kind == "tag":
        tags = signal.tags
        return lambda reading: float(all(reading.prompt.tags.get(key) in values for key, values in tags.items()))
    if kind in FLAGS:
        return lambda reading: float(getattr(reading.prompt, kind) is value)
    if kind == "turns":
        return lambda reading: float(value.holds(reading.prompt.user_turns))
    return lambda reading: float(value.holds(getattr(reading.prompt, kind)))


def _similarity(encoder: Encoder, examples: list[str], roles: tuple[str, ...]) -> Callable[[Reading], float]:
    import numpy as np

    known: Any = np.stack([_unit(encoder, Prompt(turns=(Turn("user", each),))) for each in examples])
    return lambda reading: float((known @ reading.embedded(encoder, roles)).max())


def _unit(encoder: Encoder, prompt: Prompt) -> Vector:
    import numpy as np

    if not prompt.turns:
        return np.zeros(encoder.dim, dtype=np.float32)
    vector = encoder.encode(prompt)
    length = float(np.sqrt(np.dot(vector, vector)))
    return vector / np.float32(length) if length > 0 else vector
