"""An embeddings endpoint as an encoder asks it: from a thread, texts in, vectors out.

    POST url/v1/embeddings    {"model": ..., "input": [text, ...], "encoding_format": "float"}
    200                       {"data": [{"index": 0, "embedding": [...]}, ...]}, in any order

Only the operator's address is asked. What comes back is `dimensions` finite numbers for each text, or an error that says nothing of them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from gateway.config.schema import Embeddings
from gateway.engines.blocking import Client, NoAnswer
from gateway.wire.errors import JSON, Header

if TYPE_CHECKING:
    from models.encoders.endpoint import Endpoint

log = logging.getLogger("trilemma.embeddings")

OFF_LINE_S: Final = 60.0
"""How long a call may take where no request waits for it."""

# A number as JSON, with what parts it from the next; and what stands around the vectors.
_A_NUMBER: Final = 64
_AROUND: Final = 1 << 16
# The endpoint is well, and these texts are not for it: too long, as a rule.
_OF_THE_TEXT: Final = frozenset((400, 413, 422))
# An endpoint that failed is left alone for so long, so that not every request waits for it in vain.
_PAUSE_S: Final = 1.0


class Unanswered(Exception):
    """The endpoint gave no vectors. It says why, and no word of the texts."""


class _Vector(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Vector]


_answer = msgspec.json.Decoder(_Answer).decode


class Embedder:
    """Asks one endpoint; safe in threads. name: in `embeddings`. timeout_s: of a call, in place of the settings'. now: monotonic, seconds,
    of the pause after a failure."""

    def __init__(self, name: str, settings: Embeddings, timeout_s: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        headers: list[Header] = [JSON, (b"accept", b"application/json"), (b"accept-encoding", b"identity")]
        if settings.key is not None:
            headers.append((b"authorization", b"Bearer " + settings.key.get_secret_value().encode()))
        self._name = name
        self._settings = settings
        self._timeout_s = settings.timeout_s if timeout_s is None else timeout_s
        self._client = Client(f"{settings.url.rstrip('/').removesuffix('/v1')}/v1/embeddings", headers)
        self._now = now
        self._fault: tuple[type[Exception], float] | None = None  # of what kind the last call failed, and until when no other goes
        self._ailing = False

    def ask(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each. Raises TimeoutError where it takes too long, Unanswered for all else that is amiss."""
        fault = self._fault
        if fault is not None and self._now() < fault[1]:
            raise fault[0](f"the endpoint `{self._name}` failed a moment ago")
        try:
            status, data = self._client.post(self._body(texts), self._timeout_s, self._most(len(texts)))
            if status != 200:
                raise self._failed(f"status {status}", pause=status not in _OF_THE_TEXT)
            vectors = self._vectors(data, len(texts))
        except TimeoutError:
            raise self._failed(f"no whole answer within {self._timeout_s:g} s", TimeoutError) from None
        except NoAnswer as error:
            raise self._failed(str(error)) from None
        except OSError as error:
            raise self._failed(f"no connection ({type(error).__name__})") from None
        except ValueError:
            raise self._failed("its address or its key cannot be used") from None
        if self._ailing:
            self._ailing = False
            log.info("the embeddings endpoint `%s` answers again", self._name)
        self._fault = None
        return vectors

    def _body(self, texts: Sequence[str]) -> bytes:
        settings = self._settings
        body = {"model": settings.model, "input": list(texts), "encoding_format": "float"}
        return orjson.dumps(body | ({"dimensions": settings.dimensions} if settings.shorten else {}))

    def _most(self, count: int) -> int:
        return _AROUND + count * self._settings.dimensions * _A_NUMBER

    def _vectors(self, data: bytes, count: int) -> list[list[float]]:
        """Raises Unanswered for another shape."""
        try:
            found = {each.index: each.embedding for each in _answer(data).data}
        except msgspec.DecodeError:
            raise self._failed("an answer that holds no vectors") from None
        if found.keys() != set(range(count)):
            raise self._failed("not one vector for each text")
        dimensions = self._settings.dimensions
        for vector in found.values():
            if len(vector) != dimensions:
                raise self._failed(f"vectors of {len(vector)} numbers; `dimensions` says {dimensions}")
            if not all(map(math.isfinite, vector)):
                raise self._failed("a number that is not finite")
        return [found[index] for index in range(count)]

    def _failed(self, why: str, kind: type[Exception] = Unanswered, *, pause: bool = True) -> Exception:
        """Tells of it once, until it answers again; what is to be raised."""
        if pause:
            self._fault = (kind, self._now() + _PAUSE_S)
        if not self._ailing:
            self._ailing = True
            log.warning("the embeddings endpoint `%s` gives no features: %s", self._name, why)
        return kind(f"the embeddings endpoint `{self._name}`: {why}")


def endpoint(name: str, settings: Embeddings, timeout_s: float | None = None) -> Endpoint:
    """What the encoder `endpoint:NAME` stands on; nothing is asked yet. timeout_s: of a call, in place of the settings'."""
    from models.encoders.endpoint import Endpoint  # numpy comes with it, for those who have an endpoint

    return Endpoint(version(name, settings), settings.dimensions, Embedder(name, settings, timeout_s).ask, settings.characters)


def endpoints(given: Mapping[str, Embeddings], timeout_s: float | None = None) -> dict[str, Endpoint]:
    """Each by its name."""
    return {name: endpoint(name, settings, timeout_s) for name, settings in given.items()}


def version(name: str, settings: Embeddings) -> str:
    """What a block of its features is known by: another one where the numbers would be others, and not where only the way there is."""
    said = [settings.model, settings.dimensions, settings.shorten, settings.characters]
    return f"endpoint:{name}-{hashlib.blake2b(json.dumps(said).encode(), digest_size=4).hexdigest()}"
