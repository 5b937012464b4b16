"""How sure a model was of what it wrote, from the log-probabilities of its tokens (nats), and what that is worth in a vote.

    mean log-probability   (1/n) sum_i log p_i                       at most 0; exp of it: the probability per token, CISC's
                                                                      "response probability"
    token confidence       C_i = -(1/k) sum_{j<=k} log p_ij           DeepConf (Fu et al. 2025, arXiv 2508.15260); j: the k most likely
                                                                      tokens at i. Higher: more of the mass is on the first of them
    group confidence       G_t = mean of C over w tokens that end at t    the same; w = 2,048 there
      lowest, bottom       the least G; the mean of the least 10 % of them
      tail                 mean of C over the last w tokens
    self-certainty         mean_i KL(uniform || p_i)                  Kang et al. 2025, arXiv 2502.18581; here over the k alternatives that
                           = -(1/nk) sum_ij log(k q_ij)               are known, q_ij = p_ij / sum_j p_ij: comparable for one k only
    weights                softmax over i of c_i / T                  CISC (Taubenfeld et al. 2025, arXiv 2502.06233): within one question

Nothing is made up: without log-probabilities there is no confidence, None. Alternatives that an engine masked (a grammar's, -9999 or no
finite number) are left out, and a token with fewer than two others than those says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

WINDOW: Final = 2_048
BOTTOM: Final = 0.1
_MASKED: Final = -9_000.0
_FEWEST_ALTERNATIVES: Final = 2


class Logprobs(NamedTuple):
    """Of the tokens of one candidate. chosen: log-probability of each token. top: of the alternatives at each token, as many as the engine
    gave; empty where it gave none."""

    chosen: tuple[float, ...]
    top: tuple[tuple[float, ...], ...]


def read(logprobs: Any) -> Logprobs | None:
    """`choice.logprobs` of a chat answer (`content`: token, logprob, top_logprobs) or of a completion (`token_logprobs`, `top_logprobs`),
    decoded. A token whose log-probability is no finite number is left out; None: there are none."""
    if not isinstance(logprobs, Mapping):
        return None
    content = logprobs.get("content")
    if isinstance(content, list):
        entries = [each for each in content if isinstance(each, Mapping)]
        return _logprobs([(each.get("logprob"), _alternatives(each.get("top_logprobs"))) for each in entries])
    chosen = logprobs.get("token_logprobs")
    if not isinstance(chosen, list):
        return None
    top = logprobs.get("top_logprobs")
    tops = top if isinstance(top, list) and len(top) == len(chosen) else [None] * len(chosen)
    return _logprobs([(one, list(some.values()) if isinstance(some, Mapping) else []) for one, some in zip(chosen, tops, strict=True)])


def _alternatives(top: Any) -> list[Any]:
    return [each.get("logprob") for each in top if isinstance(each, Mapping)] if isinstance(top, list) else []


def _logprobs(entries: list[tuple[Any, list[Any]]]) -> Logprobs | None:
    known = [(float(one), tuple(float(each) for each in some if _known(each))) for one, some in entries if _known(one)]
    return Logprobs(tuple(one for one, _ in known), tuple(some for _, some in known)) if known else None


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _MASKED < value < math.inf


def mean_logprob(chosen: Sequence[float]) -> float | None:
    """Nats per token, at most 0 for probabilities; None: no tokens."""
    return math.fsum(chosen) / len(chosen) if chosen else None


def token_confidences(top: Sequence[Sequence[float]]) -> list[float]:
    """C_i of the tokens that have at least two alternatives, in their order; nats."""
    return [-sum(some) / len(some) for some in top if len(some) >= _FEWEST_ALTERNATIVES]


def lowest_group(values: Sequence[float], window: int = WINDOW) -> float | None:
    """The least mean over `window` values in a row, of all where there are fewer; None: there are none. values: token confidences, or the
    log-probabilities of the chosen tokens, which are surer when higher, too."""
    groups = _groups(values, window)
    return min(groups) if groups else None


def bottom_groups(values: Sequence[float], window: int = WINDOW, share: float = BOTTOM) -> float | None:
    """The mean over the least of those means: this share of them, rounded down, but at least one."""
    groups = sorted(_groups(values, window))
    least = groups[: max(1, int(len(groups) * share))]
    return math.fsum(least) / len(least) if least else None


def tail(values: Sequence[float], window: int = WINDOW) -> float | None:
    """The mean over the last `window` values."""
    return mean_logprob(values[-window:])


def _groups(values: Sequence[float], window: int) -> list[float]:
    """Means over all runs of `window` values. Raises ValueError if it is not positive."""
    if window < 1:
        raise ValueError("a window has at least one token")
    if len(values) <= window:
        return [math.fsum(values) / len(values)] if values else []
    sums = list(accumulate(values, initial=0.0))
    return [(after - before) / window for before, after in zip(sums, sums[window:], strict=False)]


def self_certainty(top: Sequence[Sequence[float]]) -> float | None:
    """Nats, at least 0: 0 where all alternatives are as likely. None: no token has alternatives."""
    certainties = []
    for some in top:
        if len(some) >= _FEWEST_ALTERNATIVES:
            greatest = max(some)
            mass = greatest + math.log(math.fsum(math.exp(each - greatest) for each in some))
            certainties.append(mass - math.log(len(some)) - math.fsum(some) / len(some))
    return max(0.0, math.fsum(certainties) / len(certainties)) if certainties else None


def cisc_weights(confidences: Sequence[float | None], temperature: float = 1.0, standardised: bool = False) -> list[float] | None:
    """The weights of one question's candidates: positive, 1 in sum. temperature: in the unit of the confidences; low: the surest decides;
    high: all weigh alike. The paper fits it for each model. standardised: each confidence less their mean, over their standard deviation
    first, so that one temperature serves measures of any scale. None: a candidate has no confidence, so that they cannot be compared; the
    plain vote is left. Raises ValueError if the temperature is not positive."""
    if not temperature > 0.0:
        raise ValueError("the temperature is positive")
    known = [each for each in confidences if each is not None and math.isfinite(each)]
    if not known or len(known) != len(confidences):
        return None
    if standardised:
        scale = max(map(abs, known)) or 1.0
        known = [each / scale for each in known]
        mean = math.fsum(known) / len(known)
        deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in known) / len(known))
        known = [(each - mean) / deviation if deviation > 0.0 else 0.0 for each in known]
    greatest = max(known)
    odds = [math.exp(max(-_LEAST_EXPONENT, (each - greatest) / temperature)) for each in known]
    mass = math.fsum(odds)
    return [each / mass for each in odds]


_LEAST_EXPONENT: Final = 700.0


def most_confident(confidences: Sequence[float | None], share: float) -> list[int]:
    """Places of the surest candidates, rising: this share of those that have a confidence, rounded up; of equals the earliest. DeepConf's
    filter before the vote: 0.1 or 0.9. Empty: nobody has one."""
    known = [(place, each) for place, each in enumerate(confidences) if each is not None and not math.isnan(each)]
    known.sort(key=lambda pair: (-pair[1], pair[0]))
    return sorted(place for place, _ in known[: math.ceil(len(known) * share)])
