"""Routing between a weak and a strong model, offline: RouteLLM's pairs on MMLU and GSM8K, with and without labels of the set itself.

    mmlu_zero     difficulty learned on MMLU-Pro (no question of MMLU) + length      no label of MMLU
    gsm8k_zero    gain of the same pair learned on MMLU + length                     no label of GSM8K
    mmlu_1500     Gaussian process and neighbours on 1,500 labels; 5 drafts of them; the subject is hidden
    gsm8k_400     the same on 400 labels, with gsm8k_zero's score as its prior mean

A draft's labelled prompts are not scored, and those that stand among the scored ones in other words are not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from policies.bench import features, heads, metrics
from policies.bench.data import Pair, count, disjoint, question
from policies.bench.heads import Floats, Prepared, Rows, Views
from policies.offpolicy.matrix import Matrix
from policies.policy import RoutingPolicy
from policies.routing import linucb, neighbors

SELECTION: Final = (
    "The settings of these heads (kernels, their weights, neighbours, blends, penalties) were compared on these very sets before, so the "
    "figures carry a small gain by selection, some 0.003 APGR."
)
PUBLISHED: Final[Mapping[str, float]] = {"mmlu": 0.603, "gsm8k": 0.622}
"""APGR of RouteLLM's best router on each set, trained on preferences from Chatbot Arena with GPT-4 as a judge (Ong et al. 2024)."""
WEAK_PRICE: Final = 0.24 / 24.7
"""Of a weak call, in strong calls: USD per million tokens of Mixtral 8x7B and GPT-4, as RouteLLM took them."""

_DIFFICULTY: Final = 0.25
_RIDGE: Final = 30.0
_WORDS: Final = 4.0
_TRANSFER: Final = 0.15


@dataclass(frozen=True)
class Trial:
    """One figure's scores under one seed. router: whose score the figure is. scores: by router, (n,) each over the pair.
    training: prompts that the figure's router was trained on."""

    figure: str
    seed: int
    router: str
    pair: Pair
    scores: Mapping[str, Floats]
    training: tuple[str, ...]

    @property
    def overlap(self) -> int:
        """Training prompts that are scored, too."""
        return count(self.training, self.pair.prompts)

    def apgr(self, router: str) -> float:
        """Of one router."""
        return metrics.apgr(self.scores[router], self.pair.weak, self.pair.strong)


@dataclass(frozen=True)
class Set:
    """A pair as it is seen."""

    pair: Pair
    views: Views


def gain(pair: Pair) -> Floats:
    """What the strong model adds on each prompt."""
    return pair.strong - pair.weak


def mmlu_zero(mmlu: Set, pro: Matrix) -> Trial:
    """No label of MMLU: difficulty by MMLU-Pro's models other than the pair's, without the prompts that MMLU has too, beside the length."""
    rows = disjoint(pro.prompts, mmlu.pair.prompts)
    prompts = [pro.prompts[row] for row in rows]
    others = np.flatnonzero(["Mixtral" not in name for name in pro.plans])
    difficulty = 1 - np.nanmean(pro.rewards[np.ix_(rows, others)], axis=1)
    shape = features.shape(prompts)
    scale = features.scale(shape)
    stems = features.shape([question(prompt) for prompt in mmlu.pair.prompts])
    own, found = heads.ridge(scale.apply(shape), difficulty, _RIDGE, scale.apply(stems))
    hard, length = heads.standard(found, own), mmlu.views.length
    score = heads.standard(length, features.length(prompts)) + _DIFFICULTY * hard
    scores = {"difficulty + length": score, "difficulty": hard, "length": length} | references(mmlu.pair)
    return Trial("mmlu_zero", 0, "difficulty + length", mmlu.pair, scores, tuple(prompts))


def gsm8k_zero(gsm8k: Set, mmlu: Set, embedding: str) -> Trial:
    """No label of GSM8K: the gain of the same pair, learned on MMLU, beside the length."""
    rows = disjoint(mmlu.views.prompts, gsm8k.views.prompts)
    training = mmlu.views.take(rows)
    x, asked = (each.embeddings[embedding].astype(np.float64) for each in (training, gsm8k.views))
    own, found = heads.ridge(x, gain(mmlu.pair)[rows], _RIDGE, asked)
    transferred, length = heads.standard(found, own), gsm8k.views.length
    score = (transferred + heads.standard(length, training.length)) / np.sqrt(2)
    scores = {"gain on MMLU + length": score, "gain on MMLU": transferred, "length": length} | references(gsm8k.pair)
    return Trial("gsm8k_zero", 0, "gain on MMLU + length", gsm8k.pair, scores, training.prompts)


@dataclass(frozen=True)
class Draft:
    """known: the labelled prompts, with what is seen of them; rest: those that are scored; blocks: of both."""

    known: Set
    rest: Set
    blocks: Prepared
    rows: tuple[Rows, Rows]


def drafted(of: Set, labels: int, seed: int) -> Draft:
    """A random draft of labelled prompts, less those that are scored in other words."""
    order = np.random.default_rng(seed).permutation(len(of.pair.ids))
    scored, draft = np.sort(order[labels:]), order[:labels]
    draft = draft[disjoint([of.pair.prompts[row] for row in draft], [of.pair.prompts[row] for row in scored])]
    known, rest = (Set(of.pair.take(rows), of.views.take(rows)) for rows in (draft, scored))
    return Draft(known, rest, heads.prepared(known.views, rest.views), (draft, scored))


def mmlu_1500(mmlu: Set, labels: int, seed: int) -> Trial:
    """1,500 labels; the first embedding's score is the figure."""
    draft = drafted(mmlu, labels, seed)
    scores = {}
    for name in mmlu.views.embeddings:
        blocks = draft.blocks.embedded(draft.known.views, draft.rest.views, name)
        own, found = heads.process(blocks, gain(draft.known.pair))
        scores[named(name)] = heads.blended(found, own, draft.known.views, draft.rest.views)
    return _trial("mmlu_1500", seed, draft, scores | _simple(draft))


def gsm8k_400(gsm8k: Set, zero: Trial, labels: int, seed: int) -> Trial:
    """400 labels beside the score that needs none. zero: what gsm8k_zero() gave."""
    draft = drafted(gsm8k, labels, seed)
    known, rest = (zero.scores[zero.router][rows] for rows in draft.rows)
    prior = (_TRANSFER * (known - known.mean()), _TRANSFER * (rest - known.mean()))
    scores = {}
    for name in gsm8k.views.embeddings:
        blocks = draft.blocks.embedded(draft.known.views, draft.rest.views, name)
        scores[named(name)] = heads.process(blocks, gain(draft.known.pair), prior, smooth=False)[1]
    made = _trial("gsm8k_400", seed, draft, scores | {f"no label: {zero.router}": rest} | _simple(draft))
    return replace(made, training=made.training + zero.training)


def named(embedding: str) -> str:
    """The Gaussian process' name in tables."""
    return f"Gaussian process, {embedding}"


def _trial(figure: str, seed: int, draft: Draft, scores: Mapping[str, Floats]) -> Trial:
    more = {"length": draft.rest.views.length} | references(draft.rest.pair, seed)
    return Trial(figure, seed, next(iter(scores)), draft.rest.pair, {**scores, **more}, draft.known.pair.prompts)


def _simple(draft: Draft) -> dict[str, Floats]:
    """Simpler routers on the same labels, the product's own policies among them, which read the last embedding."""
    known, blocks = draft.known.pair, draft.blocks
    found = {"ridge on words": heads.ridge(blocks.training["words"], gain(known), _WORDS, blocks.scored["words"])[1]}
    embedding = list(draft.known.views.embeddings)[-1:]
    training, asked = ({name: each.views.embeddings[name] for name in embedding} for each in (draft.known, draft.rest))
    for encoder in heads.given(training):
        built: dict[str, RoutingPolicy[Any]] = {
            "policy neighbors": neighbors.Neighbors(neighbors.Params(), heads.PAIR, encoder, "weak"),
            "policy linucb": linucb.LinUCB(linucb.Params(features=(encoder.name,)), heads.PAIR, [encoder]),
        }
        found |= {f"{name}, {encoder.name}": heads.policy(each, training, known.weak, known.strong, asked) for name, each in built.items()}
    if any(known.categories):
        found["category prior (told)"] = heads.category_prior(known.categories, gain(known), draft.rest.pair.categories)
    return found


def references(pair: Pair, seed: int = 0) -> dict[str, Floats]:
    """Chance, and what nobody can know before."""
    return {"random": np.random.default_rng(seed).random(len(pair.ids)), "oracle": gain(pair)}
