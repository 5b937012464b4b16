"""Scores learned from labels, and the features that they are learned on, against numbers worked out by hand or in another way."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from policies.bench import features, heads, routellm
from policies.bench.data import Pair
from policies.bench.heads import Views
from policies.bench.routellm import Set
from policies.routing import linucb

TEXTS = ("the cat sat on the mat", "the cat ate the rat", "a dog sat on a log", "a dog ate a frog", "the cat and a dog", "numbers 1 and 2")


def seen(prompts: tuple[str, ...], length: list[float] | None = None) -> Views:
    return Views(prompts, np.zeros((len(prompts), 1)), np.array(length or [float(len(each)) for each in prompts]), {})


def test_scaling_is_by_the_training_rows_and_cut_off_at_four_deviations() -> None:
    scale = features.scale(np.array([[0.0, 5.0], [2.0, 5.0]]))
    assert scale.apply(np.array([[3.0, 6.0], [99.0, 5.0]])).tolist() == [[2.0, 1.0], [4.0, 0.0]]


def test_words_are_the_singular_vectors_of_tf_idf() -> None:
    words = features.words(TEXTS, dim=3, least=1)
    terms = list(words.vocabulary)
    assert "the cat" in terms
    table = np.zeros((len(TEXTS), len(terms)))
    for row, text in enumerate(TEXTS):
        single = text.split()
        for term in single + [f"{a} {b}" for a, b in pairwise(single)]:
            table[row, terms.index(term)] += 1
    df = (table > 0).sum(axis=0)
    weighted = np.where(table > 0, 1 + np.log(np.maximum(table, 1)), 0) * (np.log((1 + len(TEXTS)) / (1 + df)) + 1)
    weighted /= np.linalg.norm(weighted, axis=1, keepdims=True)
    left, sizes, _ = np.linalg.svd(weighted, full_matrices=False)
    expected = (left * sizes)[:, :3]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = words.apply(TEXTS)
    assert found @ found.T == pytest.approx(expected @ expected.T, abs=1e-6)
    assert words.apply(["zzz", ""]).tolist() == [[0.0] * 3] * 2


def test_few_labels_leave_the_length_in_charge() -> None:
    training, scored = seen(("a",) * 100, [1.0, 3.0] * 50), seen(("b",), [4.0])
    # n = 100: a quarter of the score, (7 - 1) / 2 = 3 deviations, and three quarters of the length, (4 - 2) / 1 = 2.
    blended = heads.blended(np.array([7.0]), np.array([-1.0, 3.0] * 50), training, scored)
    assert blended == pytest.approx([0.25 * 3 + 0.75 * 2])


def test_ridge_draws_to_the_mean() -> None:
    # x centred: -1, 1; slope = (1 * 1 + -1 * -1) / (2 + 2) = 0.5
    own, found = heads.ridge(np.array([[0.0], [2.0]]), np.array([0.0, 2.0]), 2.0, np.array([[5.0]]))
    assert own.tolist() == [-0.5, 0.5]
    assert found.tolist() == [2.0]


def test_a_category_counts_by_how_often_it_was_seen() -> None:
    found = heads.category_prior(["a", "a", "b", "b"], np.array([1.0, 1.0, 0.0, 0.0]), ["a", "b", "c"], strength=2.0)
    assert found.tolist() == [(2 + 2 * 0.5) / 4, (0 + 2 * 0.5) / 4, 0.5]


def test_nearest_are_those_with_the_least_distance() -> None:
    among = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])
    assert sorted(heads.nearest(np.array([[4.0, 0.0]]), among, 2)[0].tolist()) == [1, 2]
    assert heads.nearest(np.array([[4.0, 0.0]]), among, 9).shape == (1, 3)


def test_a_policy_of_the_product_scores_by_the_strong_plans_lead() -> None:
    x = np.array([[1.0], [-1.0]] * 50, dtype=np.float32)
    strong = np.array([1.0, 0.0] * 50)
    built = linucb.LinUCB(linucb.Params(features=("x",), ridge=1.0), heads.PAIR, heads.given({"x": x}))
    lead = heads.policy(built, {"x": x}, 1 - strong, strong, {"x": x[:2]})
    assert lead[0] > 0.8
    assert lead[1] < -0.8


def test_labelled_prompts_that_are_scored_in_other_words_are_not_trained_on() -> None:
    prompts = tuple(f"question {row // 2}" + "?" * (row % 2) for row in range(40))  # each stands there twice
    pair = Pair(tuple(map(str, range(40))), prompts, ("",) * 40, np.zeros(40), np.ones(40))
    draft = routellm.drafted(Set(pair, heads.views(prompts, {})), 20, seed=0)
    assert len(draft.rest.pair.ids) == 20
    assert 0 < len(draft.known.pair.ids) < 20
    assert not set(draft.known.pair.ids) & set(draft.rest.pair.ids)
    trial = routellm.Trial("x", 0, "length", draft.rest.pair, {}, draft.known.pair.prompts)
    assert trial.overlap == 0
    leaking = routellm.Trial("x", 0, "length", draft.rest.pair, {}, (*draft.known.pair.prompts, draft.rest.pair.prompts[0].upper()))
    assert leaking.overlap == 1


def test_a_gap_that_words_tell_is_found() -> None:
    random = np.random.default_rng(0)
    hard = random.random(300) < 0.5
    prompts = tuple(f"{'integral of' if each else 'capital of'} thing {row}" for row, each in enumerate(hard))
    pair = Pair(tuple(map(str, range(300))), prompts, ("",) * 300, (~hard).astype(float), np.ones(300))
    draft = routellm.drafted(Set(pair, heads.views(prompts, {})), 150, seed=1)
    own, found = heads.process(draft.blocks, routellm.gain(draft.known.pair))
    rest = draft.rest.pair
    gap = routellm.gain(rest)
    assert found[gap > 0].min() > found[gap == 0].max()
    assert math.isclose(float(own.mean()), 0.0, abs_tol=0.2)
