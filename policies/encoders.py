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
        self._endpoints = endpoints
        self._made: dict[str, Encoder] = {}

    def __call__(self, name: str) -> Encoder:
        """The encoder. Raises ValueError where there is none of this name, or where what it needs is missing."""
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._new(name)
        return made

    def _new(self, name: str) -> Encoder:
        kind, colon, argument = name.partition(":")
        if kind not in ENCODERS:
            raise ValueError(f"unknown encoder `{name}`; there are: {', '.join(map(_written, ENCODERS))}")
        module, wanted = ENCODERS[kind]
        if bool(colon) != bool(argument) or (argument and not wanted) or (not argument and wanted and not wanted.startswith("[")):
            raise ValueError(f"the encoder `{name}` is written as {_written(kind)}")
        make: Callable[..., Encoder] = importlib.import_module(module).encoder
        if kind == "endpoint":
            if argument not in self._endpoints:
                raise ValueError(f"the encoder `{name}`: there is no endpoint `{argument}`")
            return make(self._endpoints[argument])
        if kind == "topics":
            return make(argument, self)
        return make(argument) if argument else make()


def encoder(name: str) -> Encoder:
    """One encoder, with a memory of its own. Raises ValueError as `Encoders` does."""
    return Encoders()(name)


def _written(kind: str) -> str:
    wanted = ENCODERS[kind][1]
    if not wanted:
        return kind
    return f"{kind}[:{wanted[1:-1]}]" if wanted.startswith("[") else f"{kind}:{wanted}"
