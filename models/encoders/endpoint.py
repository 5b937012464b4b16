"""An encoder that is asked elsewhere, such as an embeddings endpoint. How it is asked is given: this floor knows no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from models.encoders.conversation import Conversation
from models.encoders.text import valid

_MESSAGES: Final = 32


class Endpoint(NamedTuple):
    """name: with its version, so that other weights behind it have another name. dim: numbers of a vector. ask: the vectors of some texts;
    it waits for the answer, so it runs in a thread, and raises what it likes when there is none. budget: characters that are read of a
    conversation."""

    name: str
    dim: int
    ask: Callable[[Sequence[str]], Sequence[Sequence[float]]]
    budget: int = 8_192


def encoder(endpoint: Endpoint) -> Conversation:
    """The encoder."""

    def ask(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return endpoint.ask([valid(text) for text in texts])

    return Conversation(
        endpoint.name, endpoint.dim, lambda text: ask([text])[0], vectors=ask, slow=True, budget=endpoint.budget, most=_MESSAGES
    )
