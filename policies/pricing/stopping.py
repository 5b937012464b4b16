"""When a vote is decided: how many more answers to draw, given the votes so far.

With v1 votes for the leading answer and v2 for the runner-up, and nothing known before, the leader's share p of what goes to either is
Beta(v1 + 1, v2 + 1), and the leader is ahead with probability

    P = P(p > 1/2) = 1 - sum_{k <= v2} C(m, k) / 2^m,  m = v1 + v2 + 1

    Threshold   stops when P >= confidence (Adaptive-Consistency, Aggarwal et al. 2023, arXiv 2305.11860)
    Window      stops when a whole window agrees (ESC, Li et al. 2024, arXiv 2401.10480)
    Priced      stops when more votes are not worth their tokens. h more of them bring E[max(P', 1 - P')] - P, the chance to be right
                instead of wrong; the index is the most of that per vote over h <= reach, times the share of answers that vote for either.
                (One vote changes nothing when the lead is two or more, hence the look-ahead.)

All stop when the runner-up cannot catch up within the cap. They ask for answers in rounds: `first` at once, then `then`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Protocol

CAP: Final = 20
REACH: Final = 8


@dataclass(frozen=True, slots=True)
class Votes:
    """What is known after n answers. first, second: votes for the leader and for the runner-up; tokens: of all n; run: how many of the last
    answers are the same one. An answer that cannot be read counts in n and votes for nobody."""

    first: int = 0
    second: int = 0
    n: int = 0
    tokens: float = 0.0
    run: int = 0


class Stop(Protocol):
    """A rule. cap: the most answers that it draws."""

    @property
    def cap(self) -> int: ...

    def more(self, votes: Votes) -> int:
        """How many answers to draw now; 0: stop."""
        ...


def ahead(first: int, second: int) -> float:
    """P: the chance that the first of two answers is the more frequent one, given their votes. Exact; 1/2 for equal votes."""
    least = min(first, second)
    m = first + second + 1
    term = total = 1
    for k in range(least):
        term = term * (m - k) // (k + 1)
        total += term
    behind = total / (1 << m)
    return 1.0 - behind if first >= second else behind


def settled(votes: Votes, cap: int) -> bool:
    """Whether the runner-up cannot catch up, not even with all answers that are left."""
    return votes.first - votes.second > cap - votes.n


def look_ahead(first: int, second: int, reach: int = REACH) -> float:
    """What a further vote for one of the two is worth: the most, over h <= reach, of (E[max(P', 1 - P')] - P) / h.

    P is a martingale, so the expectation is P + E[max(0, 1 - 2 P')]: only votes that change the leader count. first >= second."""
    best = 0.0
    m = first + second + 1
    none = 1.0  # the chance that of h votes the leader gets none
    at = math.comb(m, first) / (1 << m)  # a fair coin's chance of exactly `first` heads in m throws,
    below = ahead(first, second)  # and of at most as many, which is P
    for h in range(1, reach + 1):
        none *= (second + h) / (first + second + 1 + h)
        below -= at / 2.0
        m += 1
        at *= m / (2.0 * (m - first))
        k, gain, weight, after, mass = 0, 0.0, none, below, at
        while first + k < second + h - k:
            gain += weight * (1.0 - 2.0 * after)
            weight *= (h - k) / (k + 1) * (first + 1 + k) / (second + h - k)
            k += 1
            mass *= (m - first - k + 1) / (first + k)
            after += mass
        best = max(best, gain / h)
    return best


@dataclass(frozen=True, slots=True)
class Fixed:
    """All at once, whatever they say."""

    cap: int = CAP

    def more(self, votes: Votes) -> int:
        """What is missing."""
        return max(0, self.cap - votes.n)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The Beta rule. The defaults lose about a tenth of a point against 20 answers; 0.95 is the strict one."""

    confidence: float = 0.88
    first: int = 4
    then: int = 2
    cap: int = CAP

    def more(self, votes: Votes) -> int:
        """A round, as long as the leader may well be another."""
        if votes.n and (settled(votes, self.cap) or (votes.n >= self.first and ahead(votes.first, votes.second) >= self.confidence)):
            return 0
        return _round(votes.n, self.first, self.then, self.cap)


@dataclass(frozen=True, slots=True)
class Window:
    """Windows of `size` answers, until all of one are the same. Votes must come window by window."""

    size: int = 4
    cap: int = CAP

    def more(self, votes: Votes) -> int:
        """The rest of the window, or another one."""
        done = votes.n % self.size == 0 and votes.run >= self.size
        if votes.n and (done or settled(votes, self.cap)):
            return 0
        return min(self.size - votes.n % self.size, max(0, self.cap - votes.n))


@dataclass(frozen=True, slots=True)
class Priced:
    """The price rule. price: of an answer of `tokens` tokens, in chances to be right (0.005: half a percent); longer answers cost more in
    proportion. tokens: 0 where all answers cost the same."""

    price: float = 0.005
    tokens: float = 0.0
    first: int = 4
    then: int = 4
    cap: int = CAP
    reach: int = REACH

    def more(self, votes: Votes) -> int:
        """A round, as long as it is worth its price."""
        if votes.n and (settled(votes, self.cap) or (votes.n >= self.first and self.index(votes) <= self.price)):
            return 0
        return _round(votes.n, self.first, self.then, self.cap)

    def index(self, votes: Votes) -> float:
        """What an answer is worth now, in the unit of the price. While nobody has a vote, anything is worth its price."""
        if not votes.first:
            return 1.0
        worth = look_ahead(votes.first, votes.second, self.reach) * (votes.first + votes.second) / votes.n
        return worth * self.tokens * votes.n / votes.tokens if self.tokens and votes.tokens else worth


def _round(n: int, first: int, then: int, cap: int) -> int:
    return min(first - n if n < first else then, max(0, cap - n))
