"""Scores that say on which prompts the strong model is worth its price, learned from labels or from elsewhere.

GP and neighbours    the target strong - weak, standardised, by a Gaussian process (models/gp.py) over embedding, words and shape; then
                     score = 0.3 GP(x) + 0.7 mean GP over the 60 training prompts nearest to x
few labels           z(score) n / (n + 300) + z(log length) 300 / (n + 300), for length is right before anything is learned
ridge                (X'X + penalty I)^-1 X'y over centred features

z(.) standardises by the training prompts, never by those that are scored. Kernels, their weights and these constants: see
`routellm.SELECTION`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from models import gp
from models.gp import Term
from policies.bench import features
from policies.policy import Encoder, RoutingPolicy
from policies.values.outcome import Observation
from policies.values.plan import Candidate, Plan
from policies.values.situation import Situation

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]
Blocks = Mapping[str, npt.NDArray[np.float32]]

KERNEL: Final = (
    Term("embedding", 0.041, 0.6),
    Term("embedding", 0.067, 0.35),
    Term("embedding", 0.011),
    Term("words", 0.010),
    Term("shape", 0.007, 6.0),
    Term("shape", 0.028 / 23),
)
NOISE: Final = 0.81
NEAREST: Final = 60
_SMOOTHED: Final = 0.7
_BLEND: Final = 300.0
# How much a difference of each block counts among neighbours.
_NEAR: Final[Mapping[str, float]] = {"embedding": 1.0, "words": 0.6, "shape": 0.05}

PAIR: Final = (Plan("weak", "weak"), Plan("strong", "strong"))


@dataclass(frozen=True)
class Views:
    """What is known of each prompt: its text, its shape (n, s) unscaled, its log length (n,), and embeddings, (n, d) each, by name."""

    prompts: tuple[str, ...]
    shape: Floats
    length: Floats
    embeddings: Blocks

    def take(self, rows: Rows) -> Views:
        """These prompts."""
        embeddings = {name: vectors[rows] for name, vectors in self.embeddings.items()}
        return Views(tuple(self.prompts[row] for row in rows), self.shape[rows], self.length[rows], embeddings)


def views(prompts: Sequence[str], embeddings: Blocks) -> Views:
    """Of these prompts."""
    return Views(tuple(prompts), features.shape(prompts), features.length(prompts), embeddings)


@dataclass(frozen=True)
class Prepared:
    """Blocks of training prompts and of those to be scored, scaled and fitted on the former alone."""

    training: Mapping[str, Floats]
    scored: Mapping[str, Floats]

    def embedded(self, training: Views, scored: Views, name: str) -> Prepared:
        """With the embedding of this name, too."""
        one, other = (side.embeddings[name].astype(np.float64) for side in (training, scored))
        return Prepared({**self.training, "embedding": one}, {**self.scored, "embedding": other})


def prepared(training: Views, scored: Views) -> Prepared:
    """Words and shape."""
    scale, words = features.scale(training.shape), features.words(training.prompts)
    return Prepared(*({"words": words.apply(side.prompts), "shape": scale.apply(side.shape)} for side in (training, scored)))


def process(blocks: Prepared, targets: Floats, prior: tuple[Floats, Floats] | None = None, smooth: bool = True) -> tuple[Floats, Floats]:
    """The Gaussian process' scores of the training prompts and of the others. prior: its prior mean at both, in standard deviations."""
    terms = [term for term in KERNEL if term.block in blocks.training]
    before, after = (0.0, 0.0) if prior is None else prior
    fitted = gp.fit(terms, NOISE, blocks.training, standard(targets, targets), before)
    own, found = fitted.mean(blocks.training, before), fitted.mean(blocks.scored, after)
    if not smooth:
        return own, found
    near = nearest(_stacked(blocks.scored), _stacked(blocks.training), NEAREST)
    return own, (1 - _SMOOTHED) * found + _SMOOTHED * own[near].mean(axis=1)


def blended(score: Floats, own: Floats, training: Views, scored: Views) -> Floats:
    """The score and the length, by the number of labels. own: scores of the training prompts, which give the scale."""
    n = len(training.prompts)
    mixed: Floats = (standard(score, own) * n + standard(scored.length, training.length) * _BLEND) / (n + _BLEND)
    return mixed


def ridge(x: Floats, targets: Floats, penalty: float, scored: Floats) -> tuple[Floats, Floats]:
    """Scores of the training prompts, and of the others."""
    mean = x.mean(axis=0)
    centred = x - mean
    weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(x.shape[1]), centred.T @ (targets - targets.mean()))
    return centred @ weights, (scored - mean) @ weights


def standard(values: Floats, training: Floats) -> Floats:
    """Standardised by the mean and the standard deviation of the training values."""
    deviation = float(training.std())
    found: Floats = (values - training.mean()) / (deviation if deviation > 0 else 1.0)
    return found


def nearest(points: Floats, among: Floats, k: int) -> npt.NDArray[np.intp]:
    """Indices of the k nearest by Euclidean distance, in no order: (m, k)."""
    k = min(k, len(among))
    squares = (among**2).sum(axis=1)[None, :] - 2 * points @ among.T
    return np.argpartition(squares, k - 1, axis=1)[:, :k]


def _stacked(blocks: Mapping[str, Floats]) -> Floats:
    return np.hstack([blocks[name] * weight for name, weight in _NEAR.items() if name in blocks])


def category_prior(categories: Sequence[str], targets: Floats, scored: Sequence[str], strength: float = 20.0) -> Floats:
    """Mean target of the category, drawn to the mean of all by `strength` prompts' worth."""
    overall = float(targets.mean())
    names = np.array(categories)
    means = {
        name: (float(targets[names == name].sum()) + strength * overall) / (int((names == name).sum()) + strength)
        for name in set(categories)
    }
    return np.array([means.get(name, overall) for name in scored])


def policy(
    built: RoutingPolicy[Any],
    training: Mapping[str, npt.NDArray[np.float32]],
    weak: Floats,
    strong: Floats,
    scored: Mapping[str, npt.NDArray[np.float32]],
) -> Floats:
    """Quality of the strong plan minus the weak one's, as a policy over PAIR sees them after it was told of the training prompts."""
    told = [
        Observation(f"{plan.name}.{row}", plan.name, {name: block[row] for name, block in training.items()}, float(outcomes[row]), at=1.0)
        for row in range(len(weak))
        for plan, outcomes in zip(PAIR, (weak, strong), strict=True)
    ]
    state = built.fold(built.empty(), told)
    candidates = tuple(Candidate(plan, index) for index, plan in enumerate(PAIR))
    rows = len(next(iter(scored.values())))
    gains = []
    for row in range(rows):
        situation = Situation(candidates, {name: block[row] for name, block in scored.items()}, explore=False, now=2.0)
        quality = built.estimate(state, situation).quality
        gains.append(quality[1] - quality[0])
    return np.array(gains)


@dataclass(frozen=True)
class Given:
    """An encoder whose blocks are made beforehand."""

    name: str
    dim: int
    slow: bool = False

    def encode(self, prompt: Any) -> npt.NDArray[np.float32]:
        """It is never asked."""
        raise NotImplementedError(f"the block `{self.name}` of {type(prompt).__name__} is made beforehand")


def given(blocks: Blocks) -> list[Encoder]:
    """An encoder for each block."""
    return [Given(name, block.shape[1]) for name, block in blocks.items()]
