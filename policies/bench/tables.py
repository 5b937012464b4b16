"""Tables of what was measured, row -> column -> number, beside what it is to be compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from policies.bench import metrics
from policies.bench.online import Course, Order
from policies.bench.ope import Cell
from policies.bench.routellm import PUBLISHED, WEAK_PRICE, Trial
from policies.offpolicy.simulate import category_means

Table = Mapping[str, Mapping[str, float | None]]

_QUALITY = 0.95


def routers(trials: Sequence[Trial], published: str) -> Table:
    """Every router of a figure, mean over its trials; the interval is of the first one. published: the set in routellm.PUBLISHED."""
    rows: dict[str, dict[str, float | None]] = {name: _router(trials, name) for name in trials[0].scores}
    best = dict.fromkeys(rows[trials[0].router]) | {"APGR": PUBLISHED[published]}
    return {trials[0].router: rows.pop(trials[0].router), "RouteLLM's best, as published": best, **rows}


def _router(trials: Sequence[Trial], name: str) -> dict[str, float | None]:
    values = [_measured(trial, name) for trial in trials]
    mean: dict[str, float | None] = {column: float(np.mean([each[column] for each in values])) for column in values[0]}
    first = trials[0]
    low, high = metrics.paired(first.scores[name], first.scores["length"], first.pair.weak, first.pair.strong)
    spread = {"least": min(each["APGR"] for each in values)}
    return {"APGR": mean.pop("APGR"), **spread, **mean, "over length, from": low, "to": high}


def _measured(trial: Trial, name: str) -> dict[str, float]:
    scores, weak, strong = trial.scores[name], trial.pair.weak, trial.pair.strong
    return {
        "APGR": metrics.apgr(scores, weak, strong),
        "AUROC": metrics.auroc(scores, strong > weak),
        "CPT(50)": metrics.cpt(scores, weak, strong, 0.5),
        "CPT(80)": metrics.cpt(scores, weak, strong, 0.8),
        "cost at 95 %": metrics.cost_at(scores, weak, strong, _QUALITY, WEAK_PRICE),
    }


def accuracies(trials: Mapping[str, Trial]) -> Table:
    """By set: what always the same model gets, the better of both in each category, and of both on each prompt."""
    return {name: _accuracy(trial) for name, trial in trials.items()}


def _accuracy(trial: Trial) -> dict[str, float | None]:
    pair = trial.pair
    outcomes = np.stack([pair.weak, pair.strong], axis=1)
    per_category = category_means(outcomes, pair.categories).max(axis=1).mean() if any(pair.categories) else None
    return {
        "prompts": float(len(pair.ids)),
        "weak": float(pair.weak.mean()),
        "best fixed": float(outcomes.mean(axis=0).max()),
        "best per category": None if per_category is None else float(per_category),
        "oracle": float(outcomes.max(axis=1).mean()),
    }


def learners(course: Course, found: Mapping[str, Sequence[Order]]) -> Table:
    """Every learner: mean reward over its orders, how far it is from the best fixed plan on the same requests, and USD a request."""
    costs = course.matrix.costs
    rows = {name: _learner(orders) for name, orders in found.items()}
    if not costs.any():
        return rows
    spent = {name: float(np.mean([costs[order.rows, order.arms].mean() for order in orders])) for name, orders in found.items()}
    return {name: row | {"cost": spent[name]} for name, row in rows.items()}


def _learner(orders: Sequence[Order]) -> dict[str, float | None]:
    means = np.array([order.rewards.mean() for order in orders])
    over = np.array([order.rewards.mean() - order.best.mean() for order in orders])
    half = 1.96 * over.std(ddof=1) / np.sqrt(len(over)) if len(over) > 1 else None
    return {
        "mean reward": float(means.mean()),
        "least": float(means.min()),
        "most": float(means.max()),
        "over best fixed": float(over.mean()),
        "+-": None if half is None else float(half),
        "worst window": min(order.worst_window for order in orders),
        "resets": float(np.mean([order.alarms for order in orders])),
        "orders": float(len(orders)),
    }


def ceilings(course: Course) -> Table:
    """What no learner is told of: means over the whole matrix."""
    rewards = course.matrix.rewards
    found = {
        "best fixed": float(rewards.mean(axis=0).max()),
        "oracle": float(rewards.max(axis=1).mean()),
        "any plan": float(rewards.mean()),
    }
    if any(course.matrix.categories):
        found["best per category"] = float(category_means(rewards, course.matrix.categories).max(axis=1).mean())
    return {name: {"mean reward": value} for name, value in found.items()}


def coverage(cells: Sequence[Cell]) -> Table:
    """Of the off-policy intervals."""
    return {
        f"{cell.logging.name}, {cell.target}": {
            "coverage": cell.coverage,
            "half-width": cell.half_width,
            "refused": cell.refused,
            "ESS": float(np.nanmean(cell.ess)),
            "bias": float(np.nanmean(cell.estimates) - cell.truth),
        }
        for cell in cells
    }
