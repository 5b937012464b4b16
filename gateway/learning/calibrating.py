"""What sources' words are worth, found out while serving: once a minute, from decisions that callers judged, too.

calibrating = Calibrating(learner, learning)
await calibrating.run()            until it is cancelled
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from gateway.access.link import NoSchema
from gateway.config.schema import Learning
from gateway.learning.learner import Learner
from gateway.store import learning as store
from gateway.store.writer import StoreError
from policies.signals.calibration import BELIEVED, Calibration, calibrations

log = logging.getLogger("trilemma.learning")

_EVERY_S: Final = 60.0


def believed(learning: Learning) -> Mapping[str, Calibration]:
    """What sources' words are worth before anything is known: as configured, else as built in."""
    return {**BELIEVED, **{source: Calibration(each.at_0, each.at_1) for source, each in learning.calibration.items()}}


class Calibrating:
    """learning: the settings in use. every_s: how often it looks."""

    def __init__(self, learner: Learner, learning: Callable[[], Learning], every_s: float = _EVERY_S) -> None:
        self._learner = learner
        self._learning = learning
        self._every_s = every_s

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(self._every_s)

    async def step(self) -> None:
        """Looks once. While the database is away, what is known stays."""
        before = believed(self._learning())
        if not self._learner.calibrations:
            self._learner.calibrations = before
        try:
            pairs = await self._learner.read(store.judged_twice)
        except NoSchema:
            return
        except StoreError as error:
            log.warning("sources cannot be calibrated now: %s", error)
            return
        self._learner.calibrations = calibrations(pairs, before)
