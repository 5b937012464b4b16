"""`topics`: what a request is about, as probabilities of a few topics (at most 14), from another encoder's features.

    p = softmax(x W + b)        x: the block of the encoder that the topics were fitted on

Fitted by `trilemma fit topics` on labelled texts of the operator's own. A few soft topics cost a bandit far less exploration than the raw
features, and topic is most of what tells models apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from models.encoders import extra, softmax
from models.encoders.static import digest
from models.encoders.text import Request

MOST: Final = 14
_WHAT: Final = "the encoder `topics`"

Array = npt.NDArray[np.float64]


class Inner(Protocol):
    """The encoder that topics are read from."""

    @property
    def name(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def slow(self) -> bool: ...
    def encode(self, prompt: Any, /) -> npt.NDArray[np.float32]: ...


@dataclass(frozen=True)
class Topics:
    """A classifier. classes: the topics' names, in order."""

    classes: tuple[str, ...]
    head: softmax.Softmax

    def probabilities(self, x: npt.NDArray[np.floating]) -> Array:
        """(..., classes) for features (..., dim)."""
        return self.head.probabilities(x)


def fit_topics(x: npt.NDArray[np.floating], y: Sequence[str], l2: float = 1.0) -> Topics:
    """The classifier of these labelled features. x: (n, dim). y: n names. Raises ValueError for less than two topics, or more than 14."""
    classes = tuple(sorted(set(y)))
    if not 2 <= len(classes) <= MOST:
        raise ValueError(f"there must be 2 to {MOST} topics; these are {len(classes)}")
    index = {name: position for position, name in enumerate(classes)}
    return Topics(classes, softmax.fit(x, np.array([index[each] for each in y]), len(classes), l2))


def cross_fitted(x: npt.NDArray[np.floating], y: Sequence[str], l2: float, folds: int, seed: int) -> Array:
    """(n, classes): each row's probabilities by a classifier that saw the other folds only; classes in the order of their names.

    Learners that are trained on the same rows need these: a classifier is too sure of rows that it has seen.
    """
    classes = sorted(set(y))
    fold = np.random.default_rng(seed).permutation(len(y)) % folds
    found = np.zeros((len(y), len(classes)))
    for each in range(folds):
        held = fold == each
        seen = [label for label, out in zip(y, held, strict=True) if not out]
        if len(set(seen)) == 1:
            found[held, classes.index(seen[0])] = 1.0
            continue
        fitted = fit_topics(x[~held], seen, l2)
        columns = np.array([classes.index(name) for name in fitted.classes])
        found[np.ix_(np.flatnonzero(held), columns)] = fitted.probabilities(x[held])
    return found


def save(topics: Topics, name: str, encoder: str, file: Path) -> None:
    """Writes a file of safetensors. name: of the block that the topics are read from; encoder: what it is asked for as."""
    said = {"encoder": encoder, "block": name, "classes": "\n".join(topics.classes)}
    extra.write(file, {"weight": topics.head.weight, "bias": topics.head.bias}, said, _WHAT)


class TopicEncoder:
    """Topics as features."""

    def __init__(self, name: str, topics: Topics, inner: Inner) -> None:
        self.name = name
        self.dim = len(topics.classes)
        self.slow = inner.slow
        self.topics = topics
        self._inner = inner

    def encode(self, prompt: Request) -> npt.NDArray[np.float32]:
        """float32, (dim,), of sum 1."""
        return self.topics.probabilities(self._inner.encode(prompt)).astype(np.float32)


def encoder(file: str, encoders: Callable[[str], Inner]) -> TopicEncoder:
    """The topics in a file that `save` wrote. encoders: whose the features are. Raises ValueError for a file that holds none of them."""
    path = Path(file)
    arrays = extra.arrays(path, _WHAT)
    said = extra.metadata(path, _WHAT)
    if not {"weight", "bias"} <= arrays.keys() or not {"encoder", "block", "classes"} <= said.keys():
        raise ValueError(f"{_WHAT}: {file} holds no topics")
    topics = Topics(tuple(said["classes"].split("\n")), softmax.Softmax(arrays["weight"], arrays["bias"]))
    inner = encoders(said["encoder"])
    if inner.name != said["block"] or arrays["weight"].shape != (inner.dim, len(topics.classes)):
        raise ValueError(f"{_WHAT}: {file} was fitted on the features {said['block']}, and these are {inner.name}")
    return TopicEncoder(f"topics-{digest(path)}", topics, inner)
