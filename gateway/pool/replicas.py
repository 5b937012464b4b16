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
    """The backends that serve a model, in configured order, and what is remembered of where calls went.

    public: the model's name. before: the set until now, whose memory goes on, so that who comes or leaves moves nobody else's calls.
    """

    def __init__(
        self,
        public: str,
        backends: Sequence[Backend],
        *,
        before: Replicas | None = None,
        random: Random | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._public = public
        self.backends = tuple(backends)
        self._balancer: Balancer = Balancer(random or Random()) if before is None else before._balancer  # noqa: S311 (spreads load, keeps no secret)
        self._sessions: Sessions = Sessions(now) if before is None else before._sessions
        self._prefixes: PrefixMap = PrefixMap() if before is None else before._prefixes

    @property
    def any_live(self) -> bool:
        """Whether a call would find a replica now, as far as is known."""
        for each in self.backends:  # noqa: SIM110 - a generator costs more than what it looks at
            if each.serves and self._public not in each.strangers and each.breaker.admits():
                return True
        return False

    def pick(
        self,
        tried: Collection[str],
        session: str | None = None,
        prompt: bytes | memoryview = b"",
        salt: bytes = b"",
        *,
        early: bool = True,
    ) -> Backend:
        """The replica for a call that the `tried` ones have failed. Raises NoneLive.

        When all are cooling down, the one that is soonest done with it gets the call as its trial, unless the backend itself asked to be
        left alone, or probes cannot connect to it. early: whether that may be; not where somebody else can serve.

        session: calls with the same one stay together. prompt: what the engine sees first; calls that begin alike stay together. Both only
        while the load allows it. salt: what keeps equal prompts apart in the engine's cache.
        """
        public = self._public
        serving = [each for each in self.backends if each.serves and public not in each.strangers]
        live = [each for each in serving if each.name not in tried and each.breaker.admits()]
        # Those that have answered before those that may still be starting.
        live = [each for each in live if each.answered] or live
        if not live:
            cooling = [each for each in serving if each.name not in tried and not each.breaker.asked and each.breaker.admits(early=True)]
            if cooling and early:
                return min(cooling, key=lambda each: each.breaker.wait_s)
            waits = [each.breaker.wait_s for each in serving]
            raise NoneLive(min(waits) if waits else None)
        if len(self.backends) == 1:
            return live[0]
        # With one of several live, calls are noted all the same: when the others come back, it is known what is where.
        if session is not None:
            members = {each.name: each.weight for each in serving}
            able = members if len(live) == len(serving) else {each.name: each.weight for each in live}
            return self._balancer.choose(live, self._sessions.prefer(session, members, able))
        names = prefix_names(prompt, salt=salt) if len(prompt) >= _SHORTEST_PREFIX else []
        if not names:
            return self._balancer.choose(live)
        preferred = self._prefixes.prefer(names, [each.name for each in serving])
        chosen = self._balancer.choose(live, () if preferred is None else (preferred,))
        self._prefixes.note(names, chosen.name)
        return chosen
