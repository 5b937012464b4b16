"""Decisions, words on them, and who learns from them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from gateway.access.link import Session
from gateway.learning.fold import Folded, Known, fold_some
from gateway.learning.scopes import Scope
from gateway.learning.snapshots import Version
from gateway.store.columns import first_id
from gateway.store.writer import Item
from tests.store.making import decision, fill, item
from tests.support.means import Means, Sums
from tests.support.stored import Place

PLANS = ("small", "large")
NAME = "auto/means"
NOW = time.time()


def scope(plans: Sequence[str] = PLANS, dim: int = 3, name: str = NAME) -> Scope:
    """The policy over these plans."""
    return Scope(name, Means(plans, dim), tuple(plans), plans[0], "hash")


def features(*numbers: float) -> bytes:
    """As a row holds them."""
    return np.array(numbers, "<f4").tobytes()


def id_of(n: int, at: float = NOW) -> str:
    """Of the nth decision of that time."""
    return f"{first_id(at)}-{n:05d}"


def decided(n: int, plan: str | None = "small", **values: object) -> Item:
    """The nth decision's row; its features are n, 1 and 2."""
    row = {
        "policy": "means",
        "requested_model": "auto",
        "plan": plan,
        "outcome": "ok",
        "learn": True,
        "features": features(n, 1, 2),
        "feature_version": "size-1:3",
        "propensity": 0.5,
        "created": NOW + n,
        "unit": f"u{n}",
        "tenant": "shop",
        "decided": None,
        "config_hash": "hash",
    } | values
    return decision(id_of(n), **row)  # type: ignore[arg-type]


def said(n: int, value: float, id_: str | None = None, at: float = 0.0, **values: object) -> Item:
    """Feedback on the nth decision."""
    row = {"decision_id": id_of(n), "metric": "quality", "value": value, "key_name": "k", "weight": 1.0, "created": NOW + at} | values
    return item("feedback", tenant="shop", id=id_ or f"f{n}", **row)  # type: ignore[arg-type]


def found(n: int, value: float, source: str = "judge", probability: float = 1.0, metric: str = "quality") -> Item:
    """What another source says of the nth decision."""
    return item("outcomes", decision_id=id_of(n), metric=metric, source=source, value=value, labelling_probability=probability, created=NOW)


def sums(version: Version | None) -> tuple[list[float], list[float], list[list[float]]]:
    """A state's numbers: counts, gains, moments."""
    assert version is not None
    state: Sums = version.state
    return state.count.tolist(), state.gain.tolist(), state.moment.tolist()


def fold(session: Session, *scopes: Scope, most: int = 500, fresh: bool = False, versions: Mapping[str, Version] | None = None) -> Folded:
    """One fold, by a process that has these scopes."""
    by_name = {each.name: each for each in scopes or (scope(),)}
    folded = fold_some(session, Known(by_name, versions or {}, frozenset(by_name) if fresh else frozenset()), most)
    assert folded is not None
    return folded


__all__ = ["NAME", "NOW", "PLANS", "Place", "decided", "features", "fill", "fold", "found", "id_of", "said", "scope", "sums"]
