"""Which replica likely has the beginning of a prompt in its prefix cache: by session, or by the prompt itself.

Both only prefer; the balancer follows while the replica's load allows it. Both are of one gateway process, and bounded.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.pool.balancer import CEILING

Names = Sequence[int]

# A prefix is everybody's from this many calls on, if they are at least half of what one replica gets of the calls of late.
_MANY: Final = 16
_OF_LATE: Final = 1_024


def rendezvous(key: str, weights: Mapping[str, float]) -> list[str]:
    """All names, the one with the highest score for the key first; each comes first in proportion to its weight.

    Weighted rendezvous hashing (Thaler and Ravishankar 1998; weights: Schindelhauer and Schomaker 2005): score = -weight / ln(u), u a hash
    of key and name in (0, 1). A name that goes or comes changes nothing in the order of the others.
    """
    return sorted(weights, key=lambda name: weights[name] / math.log(_uniform(key, name)))


def _uniform(key: str, name: str) -> float:
    digest = hashlib.blake2b(f"{len(key)}:{key}{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return ((int.from_bytes(digest) >> 12) + 0.5) / 2**52


@dataclass(slots=True)
class _Session:
    home: str
    seen: float


class Sessions:
    """Each session has a home: of those that could serve when it came, the first replica in its rendezvous order that has no more than 1.25
    times its share of the sessions.

    A session keeps its home until it has been idle for `idle_s` seconds, or the home is no member any more; so when a replica leaves, its
    own sessions move and no other. At most `entries` sessions (some 300 bytes each); the longest idle go first. now: a monotonic clock.
    """

    def __init__(self, now: Callable[[], float], *, entries: int = 16_384, idle_s: float = 900.0) -> None:
        self._now = now
        self._entries = entries
        self._idle_s = idle_s
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._homes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def prefer(self, session: str, members: Mapping[str, float], live: Mapping[str, float] | None = None) -> Iterator[str]:
        """The session's home, then where it goes while that may not serve: the others in its rendezvous order.

        members: name -> weight of the replicas that may have sessions, at least one; those that cool for a moment too, for they come back.
        live: those of them that may serve now, at least one; a session without a home gets it there. None: all.
        """
        home = self._home(session, members, members if live is None else live)
        return self._order(session, home, members)

    @staticmethod
    def _order(session: str, home: str, members: Mapping[str, float]) -> Iterator[str]:
        yield home
        yield from (name for name in rendezvous(session, members) if name != home)

    def _home(self, session: str, members: Mapping[str, float], live: Mapping[str, float]) -> str:
        now = self._now()
        self._forget(now)
        key = hash(session)  # the caller chooses how long a name is
        known = self._sessions.get(key)
        if known is not None:
            known.seen = now
            self._sessions.move_to_end(key)
            if known.home in members:
                return known.home
            self._leave(known.home)
            known.home = self._place(session, live)
        else:
            if len(self._sessions) >= self._entries:
                self._leave(self._sessions.popitem(last=False)[1].home)
            known = self._sessions[key] = _Session(self._place(session, live), now)
        self._homes[known.home] = self._homes.get(known.home, 0) + 1
        return known.home

    def _place(self, session: str, live: Mapping[str, float]) -> str:
        homes = self._homes
        per_weight = CEILING * (sum(homes.get(name, 0) for name in live) + 1) / sum(live.values())
        order = rendezvous(session, live)
        return next((name for name in order if homes.get(name, 0) < math.ceil(per_weight * live[name] - 1e-9)), order[0])

    def _forget(self, now: float) -> None:
        """Sessions that have been idle for too long."""
        while self._sessions:
            key, session = next(iter(self._sessions.items()))
            if now - session.seen < self._idle_s:
                return
            del self._sessions[key]
            self._leave(session.home)

    def _leave(self, home: str) -> None:
        self._homes[home] -= 1
        if not self._homes[home]:
            del self._homes[home]


def prefix_names(prompt: bytes | memoryview, *, salt: bytes = b"", block: int = 1_024, most: int = 64) -> list[int]:
    """The names of the prompt's whole leading blocks of `block` bytes, shortest prefix first; at most `most`.

    Name i is a 64-bit hash over blocks 0..i, so it stands for a whole prefix; half a microsecond each. Names hold within one process.

    prompt: what the engine sees first, in the order it sees it: the raw JSON of `messages` or `prompt`, not of the whole body, whose other
    fields may come before and change. salt: what keeps equal prompts apart in the engine's cache (a `cache_salt`, a LoRA adapter).
    """
    names: list[int] = []
    name = hash(salt)
    for start in range(0, min(len(prompt) // block, most) * block, block):
        name = hash((name, bytes(prompt[start : start + block])))
        names.append(name)
    return names


@dataclass(slots=True)
class _Seen:
    """Where a prefix was last, and how many calls of late had it as their longest known one (as of an era of halvings)."""

    replica: str
    calls: int
    era: int


class PrefixMap:
    """Prefix name -> the replica that had it last. At most `entries` names (some 250 bytes each); the least recently used go first.

    What many different prompts begin with, such as a system prompt, would pin them all to one replica, and is soon cached on all of them:
    once a good part of the calls know no longer prefix than this one, it binds none of them.
    """

    def __init__(self, entries: int = 65_536) -> None:
        self._seen: OrderedDict[int, _Seen] = OrderedDict()
        self._entries = entries
        self._calls = 0
        self._era = 0

    def __len__(self) -> int:
        return len(self._seen)

    def prefer(self, names: Names, members: Collection[str]) -> str | None:
        """The member with the longest known prefix, or None. Counts as a call with that prefix."""
        self._count()
        for name in reversed(names):
            seen = self._seen.get(name)
            if seen is not None and seen.replica in members:
                return None if self._is_everybodys(seen, len(members)) else seen.replica
        return None

    def note(self, names: Names, replica: str) -> None:
        """The replica has these prefixes now."""
        seen = self._seen
        # The shortest last: of a prompt that is no longer used its end is forgotten first, as engines do it.
        for name in reversed(names):
            known = seen.get(name)
            if known is None:
                seen[name] = _Seen(replica, 0, self._era)
            else:
                known.replica = replica
                seen.move_to_end(name)
        while len(seen) > self._entries:
            seen.popitem(last=False)

    def _count(self) -> None:
        self._calls += 1
        if self._calls >= _OF_LATE:
            self._calls //= 2
            self._era += 1

    def _is_everybodys(self, seen: _Seen, members: int) -> bool:
        seen.calls = (seen.calls >> min(self._era - seen.era, 64)) + 1
        seen.era = self._era
        return seen.calls >= _MANY and seen.calls * 2 * members >= self._calls
