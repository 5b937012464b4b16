"""Encoders by name: what policies ask for as `shape`, `hashed`, `static`, `topics:FILE`, ...

The encoders are of models/, and a Prompt is what they read. An encoder's module, and what it needs, is loaded when it is first asked for.
The same functions make the features on line, in dry runs and off line.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from policies.policy import Encoder

if TYPE_CHECKING:
    from models.encoders.endpoint import Endpoint

# name -> (module with `encoder`, what stands behind the colon: nothing, or what it is)
ENCODERS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "shape": ("models.encoders.shape", ""),
        "hashed": ("models.encoders.hashed", ""),
        "static": ("models.encoders.static", "[FOLDER]"),
        "minilm": ("models.encoders.minilm", "[FOLDER]"),
        "topics": ("models.encoders.topics", "FILE"),
        "sentence_transformers": ("models.encoders.sentence_transformers", "FOLDER"),
        "endpoint": ("models.encoders.endpoint", "NAME"),
    }
)


class Encoders:
    """Encoders by name, each made once, with a memory of its own.

    endpoints: those that are asked elsewhere, by the name behind `endpoint:`; nobody here knows how.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint] = MappingProxyType({})) -> None:
        self.endpoints = endpoints
        self._made: dict[str, Encoder] = {}
        self._stands_on: dict[str, str] = {}  # what is made of another encoder's features -> that one

    def __call__(self, name: str) -> Encoder:
        """The encoder. Raises ValueError where there is none of this name, or where what it needs is missing."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._new(name)
        return made

    def over(self, endpoints: Mapping[str, Endpoint]) -> Encoders:
        """The same encoders, with what they remember, but for those that stand on an endpoint that is another one, or no more."""
        fresh = Encoders(endpoints)
        gone = {f"endpoint:{name}" for name, each in self.endpoints.items() if endpoints.get(name) is not each}
        for name, made in self._made.items():
            if not gone & {name, self._stands_on.get(name)}:
                fresh._made[name] = made
        fresh._stands_on.update(self._stands_on)
        return fresh

    def _new(self, name: str) -> Encoder:
        kind, colon, argument = name.partition(":")
        if kind not in ENCODERS:
            raise ValueError(f"unknown encoder `{name}`; there are: {', '.join(map(_written, ENCODERS))}")
        module, wanted = ENCODERS[kind]
        if bool(colon) != bool(argument) or (argument and not wanted) or (not argument and wanted and not wanted.startswith("[")):
            raise ValueError(f"the encoder `{name}` is written as {_written(kind)}")
        make: Callable[..., Encoder] = importlib.import_module(module).encoder
        if kind == "endpoint":
            if argument not in self.endpoints:
                there_are = f"; there are: {', '.join(self.endpoints)}" if self.endpoints else ""
                raise ValueError(f"the encoder `{name}`: there is no endpoint `{argument}`{there_are}")
            return make(self.endpoints[argument])
        if kind == "topics":
            return make(argument, lambda other: self._below(name, other))
        return make(argument) if argument else make()

    def _below(self, name: str, other: str) -> Encoder:
        self._stands_on[name] = other
        return self(other)


def encoder(name: str) -> Encoder:
    """One encoder, with a memory of its own. Raises ValueError as `Encoders` does."""
    return Encoders()(name)


def _written(kind: str) -> str:
    wanted = ENCODERS[kind][1]
    if not wanted:
        return kind
    return f"{kind}[:{wanted[1:-1]}]" if wanted.startswith("[") else f"{kind}:{wanted}"
