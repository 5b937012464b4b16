"""All sources of a configuration, each followed by a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from gateway.pool.discovery.cluster import ClusterTransport, cluster
from gateway.pool.discovery.dns import Dns
from gateway.pool.discovery.endpoint import Endpoint
from gateway.pool.discovery.file import File
from gateway.pool.discovery.follower import Changed, Follower, Status
from gateway.pool.discovery.kubernetes import Kubernetes
from gateway.pool.discovery.source import Source
from gateway.pool.discovery.spec import DnsSpec, FileSpec, Spec, StaticSpec
from gateway.pool.discovery.static import Static


def source(spec: Spec) -> Source:
    """The source of a spec. Raises ValueError for one that can never work here: Kubernetes outside of a cluster."""
    if isinstance(spec, StaticSpec):
        return Static(spec)
    if isinstance(spec, DnsSpec):
        return Dns(spec)
    if isinstance(spec, FileSpec):
        return File(spec)
    where = cluster(spec)
    return Kubernetes(spec, where, lambda: ClusterTransport(where.ca_file))


def replica(backend: str, endpoint: Endpoint) -> str:
    """What a backend's replica is called."""
    return f"{backend}/{endpoint.name}"


class Discovery:
    """One follower per backend that is discovered. Owned by a task group; `follow` again replaces the set.

    changed: is never called for two changes of one backend at once; for two backends it may be.
    """

    def __init__(self, group: asyncio.TaskGroup, changed: Changed, make: Callable[[Spec], Source] = source) -> None:
        self._group = group
        self._changed = changed
        self._make = make
        self._followed: dict[str, tuple[Spec, Follower, asyncio.Task[None]]] = {}

    def follow(self, wanted: Mapping[str, Spec]) -> None:
        """Follows exactly these from now on; the same spec goes on undisturbed. Raises ValueError, and then nothing changed."""
        new = {
            name: Follower(name, self._make(spec), self._changed)
            for name, spec in wanted.items()
            if name not in self._followed or self._followed[name][0] != spec
        }
        for name in self._followed.keys() - (wanted.keys() - new.keys()):
            self._followed.pop(name)[2].cancel()
        for name, follower in new.items():
            task = self._group.create_task(follower.run(), name=f"discovery of {name}")
            self._followed[name] = (wanted[name], follower, task)

    def check(self, wanted: Mapping[str, Spec]) -> None:
        """Raises the ValueError that `follow` would raise."""
        for name, spec in wanted.items():
            if name not in self._followed or self._followed[name][0] != spec:
                self._make(spec)

    async def heard(self, within_s: float) -> None:
        """Waits until every source has answered or failed, or the time is over. For a start that is ready when it says so."""
        with contextlib.suppress(TimeoutError):  # who has not answered by then shows in `status`
            async with asyncio.timeout(within_s):
                for _, follower, _ in tuple(self._followed.values()):
                    await follower.heard.wait()

    def status(self) -> Mapping[str, Status]:
        """Backend -> how its source does."""
        return {name: follower.status() for name, (_, follower, _) in self._followed.items()}

    def stop(self) -> None:
        """Ends all following."""
        self.follow({})
