"""All that is seen of a running gateway, in one hand: what is counted, looked at, logged and sent on.

telemetry = Telemetry(tracing, folder)
telemetry.follow(state)              the configuration in use, now and at each reload
telemetry.settled(receipt)           each request that has ended
telemetry.look_at(sources)           what gauges tell of
async with telemetry.running(): ...  measures the loop, writes this worker's numbers
await telemetry.exposed(accept)      all numbers as text
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from gateway.serving.call import Receipt
from gateway.serving.errand import Onward
from gateway.serving.feedback import Said
from gateway.serving.state import State
from gateway.telemetry import access_log, families
from gateway.telemetry.exposition import exposed
from gateway.telemetry.gauges import Sources, gauges
from gateway.telemetry.loop_lag import LoopLag
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.numbers import Labels, Snapshot, Value, lasting, merged
from gateway.telemetry.otel import Tracing
from gateway.telemetry.process import Process
from gateway.telemetry.snapshots import SnapshotFolder

log = logging.getLogger("trilemma.telemetry")

_EVERY_S: Final = 1.0


class Telemetry:
    """tracing: None: no spans. folder: where workers leave their numbers for each other; None: there is one worker."""

    def __init__(self, tracing: Tracing | None = None, folder: SnapshotFolder | None = None) -> None:
        self.metrics = Metrics()
        self._tracing = tracing
        self._folder = folder
        self._before: Snapshot = {} if folder is None else folder.before()
        self._lag = LoopLag(self.metrics.numbers.histogram(families.LOOP_DELAY))
        self._process = Process()
        self._sources: Sources | None = None
        self._counts = True
        self._tells = False
        self._failed = False
        self._scraping = asyncio.Lock()
        self._writes = True

    def follow(self, state: State) -> None:
        """Takes up a configuration."""
        settings = state.config.telemetry
        self._counts, self._tells = settings.metrics.enabled, settings.logs.access
        self.metrics.follow(state)

    def look_at(self, sources: Sources) -> None:
        """Where gauges are read from."""
        self._sources = sources

    def settled(self, receipt: Receipt) -> None:
        """A request has ended. Never fails: no request is to suffer from being counted."""
        try:
            if self._counts:
                self.metrics.settled(receipt)
            if self._tracing is not None:
                self._tracing.settled(receipt)
            if self._tells:
                access_log.told(receipt)
        except Exception:
            if not self._failed:  # once is enough: it may be so for each of them
                self._failed = True
                log.exception("a request could not be counted")

    def worked(self, receipt: Receipt) -> None:
        """The gateway has made these calls for itself. They are counted; they are no request."""
        if self._counts:
            self.metrics.worked(receipt)

    @property
    def onward(self) -> Onward | None:
        """What puts calls to backends into the trace of their request; None: there are no spans."""
        return None if self._tracing is None else self._tracing.onward

    def heard(self, said: Said) -> None:
        """Feedback has been taken."""
        if self._counts:
            self.metrics.heard(said)

    async def exposed(self, accept: str) -> tuple[bytes, str]:
        """The numbers of all workers, and the content type. One at a time, and but for a copy of the numbers off the loop."""
        async with self._scraping:
            return await asyncio.to_thread(self._text, self._numbers(), accept)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this lasts, the loop is measured, and this worker's numbers are written."""
        self._lag.start()
        if self._tracing is not None:
            self._tracing.start()
        task = asyncio.get_running_loop().create_task(self._tick(), name="telemetry")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))
            self._lag.stop()
            if self._tracing is not None:
                await asyncio.to_thread(self._tracing.close)
            if self._folder is not None:
                await asyncio.to_thread(self._write, self._folder, self._numbers(), ended=True)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                self.metrics.tick()
                if self._folder is not None:
                    await asyncio.to_thread(self._write, self._folder, self._numbers(), ended=False)
            except Exception:
                log.exception("the numbers of this second are missed")

    def _numbers(self) -> dict[str, dict[Labels, Value]]:
        """This process's own, as they are now; the caller's to add to."""
        found = self.metrics.snapshot()
        if self._sources is not None:
            found.update(gauges(self._sources))
        found[families.LOOP_LAG.name] = {(): self._lag.most_s}
        if self._tracing is not None:
            found[families.SPANS.name] = {(outcome,): float(count) for outcome, count in self._tracing.counts.items()}
        return found

    def _whole(self, own: dict[str, dict[Labels, Value]]) -> Snapshot:
        """With what only a thread may read, and what this worker's slot counted before."""
        own.update(self._process.read())
        return merged([self._before, own]) if self._before else own

    def _text(self, own: dict[str, dict[Labels, Value]], accept: str) -> tuple[bytes, str]:
        whole = self._whole(own)
        return exposed(whole if self._folder is None else merged([whole, *self._folder.others()]), accept)

    def _write(self, folder: SnapshotFolder, own: dict[str, dict[Labels, Value]], *, ended: bool) -> None:
        whole = self._whole(own)
        try:
            folder.write(lasting(whole) if ended else whole, ended=ended)
        except OSError as error:
            if self._writes:
                log.warning("the other workers cannot see this one's numbers: %s", error.strerror)
            self._writes = False
        else:
            self._writes = True
