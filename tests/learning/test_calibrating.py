"""What sources' words are worth, found out from decisions that callers judged, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.access.link import Link
from gateway.config.schema import Learning
from gateway.learning.calibrating import Calibrating
from gateway.learning.learner import Learner
from policies.signals.calibration import BELIEVED
from tests.learning.making import NAME, PLANS, decided, found, said, scope
from tests.store.making import fill
from tests.support.stored import Place


@pytest.fixture
async def learner(link: Link, place: Place) -> AsyncIterator[Learner]:
    """Of a database that is there."""
    made = Learner(place.location, every_s=0.01)
    yield made
    await made.close()


def calibrating(learner: Learner, **settings: Any) -> Calibrating:
    learning = Learning.model_validate(settings)
    return Calibrating(learner, lambda: learning)


async def test_until_enough_is_known_it_is_as_configured(learner: Learner, place: Place) -> None:
    for n in range(30):
        fill(place, said(n, 0.0), found(n, 1.0, "schema"))
    await calibrating(learner, calibration={"judge": {"at_0": 0.1, "at_1": 0.6}}).step()
    assert learner.calibrations == {**BELIEVED, "judge": (0.1, 0.6)}


async def test_decisions_that_were_judged_twice(learner: Learner, place: Place) -> None:
    """Callers were content with 3 of 4 valid answers and 1 of 4 invalid ones."""
    items = []
    for n in range(80):
        valid = n % 2
        items += [said(n, float(n % 8 < 2) if not valid else float(n % 8 != 1)), found(n, float(valid), "schema")]
    fill(place, *items, *[found(n, 0.0, "schema") for n in range(100, 200)])
    await calibrating(learner).step()
    believed = BELIEVED["schema"]
    line = learner.calibrations["schema"]
    assert line.at_0 == pytest.approx((10 + 5 * believed.at_0) / 45)
    assert line.at_1 == pytest.approx((30 + 5 * believed.at_1) / 45)
    assert learner.calibrations["tools"] == BELIEVED["tools"]


async def test_what_is_folded_then_is_worth_that(learner: Learner, place: Place) -> None:
    await calibrating(learner, calibration={"judge": {"at_0": 0.25, "at_1": 0.5}}).step()
    learner.configure([scope()])
    fill(place, decided(1), found(1, 1.0), decided(2, "large"), found(2, 0.0))
    for _ in range(50):
        await learner.step()
        if learner.folded == 2:
            break
    state = learner.snapshots[NAME].state
    assert dict(zip(PLANS, state.gain.tolist(), strict=True)) == {"small": 0.5, "large": 0.25}
