"""An encoder that is asked elsewhere, such as an embeddings endpoint. How it is asked is given: this floor knows no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from models.encoders.conversation import Conversation
from models.encoders.text import valid

_BUDGET: Final = 8_192
_MESSAGES: Final = 32


class Endpoint(NamedTuple):
    """name: with its version, so that other weights behind it have another name. dim: numbers of a vector. ask: the vector of a text; it
    waits for the answer, so it runs in a thread, and raises what it likes when there is none."""

    name: str
    dim: int
    ask: Callable[[str], Sequence[float]]


def encoder(endpoint: Endpoint) -> Conversation:
    """The encoder."""
    return Conversation(endpoint.name, endpoint.dim, lambda text: endpoint.ask(valid(text)), slow=True, budget=_BUDGET, most=_MESSAGES)
