"""The replicas of one model: which of them a call goes to."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from random import Random

from gateway.pool.affinity import PrefixMap, Sessions, prefix_names
from gateway.pool.backend import Backend
from gateway.pool.balancer import Balancer

# Shorter prompts are not worth remembering: an engine's cache saves nothing there that is seen.
_SHORTEST_PREFIX = 1_024


class NoneLive(Exception):
    """No replica may serve now. wait_s: when the soonest may be tried; None: none ever, as things stand."""

    def __init__(self, wait_s: float | None) -> None:
        super().__init__("no replica may serve")
        self.wait_s = wait_s


class Replicas:
    """The backends that serve a model, in configured order, and what is remembered of where calls went."""

    def __init__(self, backends: Sequence[Backend], *, random: Random | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.backends = tuple(backends)
        self._balancer = Balancer(random or Random())  # noqa: S311 (spreads load, keeps no secret)
        self._sessions = Sessions(now)
        self._prefixes = PrefixMap()

    def pick(self, tried: Collection[str], session: str | None = None, prompt: bytes | memoryview = b"") -> Backend:
        """The replica for a call that the `tried` ones have failed. Raises NoneLive.

        When all are cooling down, the one that is soonest done with it gets the call as its trial, unless the backend itself asked to be
        left alone.

        session: calls with the same one stay together. prompt: what the engine sees first; calls that begin alike stay together. Both only
        while the load allows it.
        """
        serving = [each for each in self.backends if each.serves]
        live = [each for each in serving if each.name not in tried and each.breaker.admits()]
        # Those that have answered before those that may still be starting.
        live = [each for each in live if each.answered] or live
        if not live:
            cooling = [each for each in serving if each.name not in tried and not each.breaker.asked and each.breaker.admits(early=True)]
            if cooling:
                return min(cooling, key=lambda each: each.breaker.wait_s)
            waits = [each.breaker.wait_s for each in serving]
            raise NoneLive(min(waits) if waits else None)
        if len(live) == 1:
            return live[0]
        if session is not None:
            return self._balancer.choose(live, self._sessions.prefer(session, {each.name: each.weight for each in serving}))
        names = prefix_names(prompt) if len(prompt) >= _SHORTEST_PREFIX else []
        if not names:
            return self._balancer.choose(live)
        preferred = self._prefixes.prefer(names, [each.name for each in serving])
        chosen = self._balancer.choose(live, () if preferred is None else (preferred,))
        self._prefixes.note(names, chosen.name)
        return chosen
