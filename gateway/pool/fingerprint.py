"""Whether the model behind a URL is still the one that was there at first.

What an engine's /v1/models says of a name, as far as it tells models apart and stays the same over restarts:

    vLLM, SGLang     root (what was loaded), parent (an adapter's base model)
    llama.cpp        meta: n_params, n_vocab, n_embd, size (bytes of all weights); it says nothing of the file
    others           nothing; `created` and `owned_by` change for no reason that matters

A backend serves a model no longer when one of these fields, if both tell it, is another than at first, or when an engine of which it is
known that it lists all that it serves (vLLM, llama.cpp) listed the name once and does not any more. Silence is no evidence: an answer that
is missing, empty or odd changes nothing, nor does a name that was never listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.engines.base import Adapter, ModelInfo

Identity = Mapping[str, str | int]

_FIELDS: Final = ("root", "parent")
_META: Final = ("n_params", "n_vocab", "n_embd", "size")
_LIST_ALL: Final = frozenset(("vllm", "llama.cpp"))
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found of a name. listed: whether it stood there itself."""

    listed: bool
    identity: Identity


@dataclass(slots=True)
class Fingerprints:
    """What a backend's models were at first. `strangers`: public name of each that is another one now -> why; replaced, never changed."""

    strangers: Mapping[str, str] = field(default_factory=dict)
    _first: dict[str, Seen] = field(default_factory=dict)
    _last: dict[str, Seen] = field(default_factory=dict)

    def see(self, adapter: Adapter, models: Mapping[str, str], cards: Sequence[ModelInfo]) -> None:
        """Compares what the engine lists now. models: public name -> the name that the engine knows."""
        if not cards:
            return
        strangers = {}
        for public, own in models.items():
            now = self._last[public] = seen(adapter, own, cards)
            first = self._first.setdefault(public, now)
            if adapter.name in _LIST_ALL and first.listed and not now.listed:
                strangers[public] = f"the engine lists {', '.join(_shown(card.id) for card in cards[:3])}, and {_shown(own)} no longer"
            elif reason := difference(first.identity, now.identity):
                strangers[public] = reason
            elif public in self.strangers and first.identity and not now.identity:
                strangers[public] = self.strangers[public]
            else:
                self._first[public] = Seen(first.listed or now.listed, {**now.identity, **first.identity})
        self.strangers = strangers

    def accept(self) -> None:
        """What was found last is what should be there."""
        self._first = dict(self._last)
        self.strangers = {}


def seen(adapter: Adapter, own: str, cards: Sequence[ModelInfo]) -> Seen:
    """What the engine's cards (one at least) say of its own name for a model."""
    for card in cards:
        aliases = card.raw.get("aliases")
        if card.id == own or (isinstance(aliases, list) and own in aliases):
            return Seen(True, identity(card))
    # An engine that answers to any name has one model, whatever it calls it.
    alone = len(cards) == 1 and not adapter.capabilities.checks_model_name
    return Seen(False, identity(cards[0]) if alone else {})


def identity(card: ModelInfo) -> Identity:
    """What tells this model from others; empty when nothing does."""
    meta = card.raw.get("meta")
    told = {name: card.raw.get(name) for name in _FIELDS} | {name: meta.get(name) for name in _META if isinstance(meta, dict)}
    return {name: value for name, value in told.items() if isinstance(value, str | int) and not isinstance(value, bool) and value != ""}


def difference(first: Identity, now: Identity) -> str | None:
    """In what they differ; None: in nothing that both tell. Where they have nothing in common another kind of engine answers."""
    for name in first.keys() & now.keys():
        if first[name] != now[name]:
            return f"{name} is {_shown(now[name])}, it was {_shown(first[name])}"
    if first and now and not first.keys() & now.keys():
        return f"another kind of engine answers: it tells {', '.join(now)}, before it was {', '.join(first)}"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
