"""Policies that are there to be used, learning as processes do: two come to what one would, and what is erased was never there."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.learning.learner import Learner
from gateway.learning.scopes import Scope
from gateway.store.database import Database
from gateway.store.erasure import erase
from gateway.store.writer import Item
from policies import registry, states
from policies.registry import Spec
from policies.values.plan import Plan
from tests.learning.making import NAME, NOW, PLANS, decided, features, fill, id_of, said
from tests.support.means import Size
from tests.support.stored import Place, SqlitePlace

SPECS = {
    "linucb": Spec("linucb", {"features": ["size"], "half_life_s": 3600.0}),
    "thompson": Spec("thompson", {"features": ["size"]}),
    "neighbors": Spec("neighbors", {"encoder": "size"}),
}


def scope(kind: str) -> Scope:
    """The policy as a configuration builds it."""
    policy = registry.policy(kind, SPECS, [Plan(name, name) for name in PLANS], PLANS[0], lambda _name: Size())
    return Scope(NAME, policy.algorithm, PLANS, PLANS[0], "hash")


def words(seed: int) -> list[Item]:
    """40 decisions over some hours with two words on each; every fourth is of the session `s`."""
    random_ = random.Random(seed)
    rows: list[Item] = []
    for n in range(40):
        block = features(*(random_.gauss(0, 1) for _ in range(3)))
        _, values, _ = decided(n, random_.choice(PLANS), features=block, session="s" if n % 4 == 0 else "other", created=NOW + 900 * n)
        rows.append(("decisions", values, 0))
        rows += [said(n, random_.random(), f"{n}-{at}", at) for at in range(2)]
    random_.shuffle(rows)
    return rows


async def learnt(place: Place, kind: str) -> dict[str, Any]:
    """The arrays of what is known once all is folded."""
    place.execute("UPDATE to_learn SET due = 0")
    learner = Learner(place.location)
    learner.configure([scope(kind)])
    await learner.step()
    await learner.step()
    await learner.close()
    assert learner.trouble is None
    return states.arrays(learner.snapshots[NAME].state)


def alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """To floating-point noise, but for what a detector of changes has seen: it looks at each answer as it comes, in whatever order."""
    assert one.keys() == other.keys()
    for name in sorted(name for name in one if not name.startswith("drift.")):
        assert np.allclose(one[name], other[name], rtol=1e-9, atol=1e-9), name


@pytest.fixture
def alone(migrated: Path, tmp_path: Path) -> Place:
    """A database beside."""
    return SqlitePlace(Path(shutil.copy(migrated, tmp_path / "alone.db")))


@pytest.mark.parametrize("kind", ["linucb", "thompson"])
async def test_two_processes_learn_what_one_would(place: Place, alone: Place, kind: str) -> None:
    rows = words(1)
    learners = [Learner(place.location) for _ in range(2)]
    for learner in learners:
        learner.configure([scope(kind)])
    for start in range(0, len(rows), 10):
        fill(place, *rows[start : start + 10])
        await learners[start // 10 % 2].step()
    found = await learnt(place, kind)
    for learner in learners:
        await learner.step()
        assert learner.snapshots[NAME].observations == 40
        alike(states.arrays(learner.snapshots[NAME].state), found)
        await learner.close()
    fill(alone, *rows)
    alike(found, await learnt(alone, kind))


@pytest.mark.parametrize("kind", SPECS)
async def test_what_is_erased_was_never_there(place: Place, alone: Place, kind: str) -> None:
    rows = words(2)
    fill(place, *rows)
    await learnt(place, kind)
    database = Database(place.location)
    await erase(database, session="s", pause_s=0)
    await database.close()
    found = await learnt(place, kind)
    gone = {id_of(n) for n in range(0, 40, 4)}
    fill(alone, *(row for row in rows if not gone & set(row[1])))
    alike(found, await learnt(alone, kind))
