"""What a policy would have been worth, from the log of another: estimates with intervals, or the reason why there is none.

Rows (x_i, a_i, r_i, p_i): context, choice, reward, and the marginal propensity of the choice (over everything that was random).
pi: the target. w_i = pi(a_i | x_i) / p_i. v_i = [labelled] / l_i, l_i: probability of being labelled (Horvitz-Thompson over labels).
q(x, a): a reward model that row i had no part in.

    DM     = 1/n sum_i sum_a pi(a | x_i) q(x_i, a)
    IPS    = 1/n sum_i v_i w_i r_i                                   clip: min(w_i, M)
    SNIPS  = sum_i v_i w_i r_i / sum_i v_i w_i
    DR     = 1/n sum_i [ sum_a pi(a | x_i) q(x_i, a) + v_i w_i (r_i - q(x_i, a_i)) ]
    SWITCH = DR without the correction where w_i > M                 M: least estimated variance + (bound of the bias)^2
    gain   = DR of the target minus that of the log's own policy, row by row (paired)

Interval: estimate +- t(0.975, df) * se. se: from the influence of each row, summed over what stays together (a session). With c_u = (sum of
the corrections v w (r - q) of unit u)^2, df = (sum c)^2 / sum c^2, as Satterthwaite does for a sum of variances: few rows with large
weights make it wide. ESS = (sum w)^2 / sum w^2, weights summed by unit. (Horvitz & Thompson 1952; Satterthwaite 1946; Dudik, Langford & Li
2011; Swaminathan & Joachims 2015; Wang, Agarwal & Dudik 2017.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from policies.offpolicy.student import quantile

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Method = Literal["dm", "ips", "snips", "dr", "switch", "gain"]

MIN_ESS: Final = 15.0
MIN_LABELS: Final = 30
# Of the target's mass may lie where the log never goes: at most so much can it change a mean of rewards in 0..1.
MAX_UNCOVERED: Final = 1e-3
LEVEL: Final = 0.95


@dataclass(frozen=True)
class Sample:
    """n rows of a log with p plans. chosen: (n,), indices. propensities: (n,), marginal, of the choice. logging, target: (n, p),
    probabilities, 0 for what was not eligible. rewards: (n,), nan: not labelled. labelling: (n,), probability of a label. predicted: (n,
    p), cross-fitted. units: (n,), 0, 1, ... without gaps; rows of one number stay together."""

    chosen: Ints
    propensities: Floats
    logging: Floats
    target: Floats
    rewards: Floats
    labelling: Floats
    predicted: Floats
    units: Ints


@dataclass(frozen=True)
class Estimate:
    """method, value, interval [low, high] at `level`. se: standard error. df: degrees of freedom of the interval. ess: effective sample
    size, of units. uncovered: share of the target's mass on choices that the log never makes. refused: why there is no interval; None:
    there is one. Where the value itself would mean nothing, it is None too."""

    method: Method
    value: float | None
    low: float | None
    high: float | None
    se: float | None
    df: float | None
    ess: float
    rows: int
    units: int
    labels: int
    uncovered: float
    level: float = LEVEL
    refused: str | None = None

    @property
    def half_width(self) -> float | None:
        """Of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class _Parts:
    """What all estimators are made of. direct: (n,), sum_a pi q. own: (n,), the same of the log's policy. weights: (n,), w. v: (n,).
    rewards: (n,), 0 where there is no label. residuals: (n,), r - q of the choice, 0 where there is no label."""

    direct: Floats
    own: Floats
    weights: Floats
    v: Floats
    rewards: Floats
    residuals: Floats


def estimates(sample: Sample, clip: float | None = None, switch: float | None = None) -> tuple[Estimate, ...]:
    """All of them: direct, IPS, SNIPS, DR, SWITCH. clip: of IPS. switch: M; None: chosen by the data."""
    return (direct(sample), ips(sample, clip), snips(sample), dr(sample), switch_dr(sample, switch))


def direct(sample: Sample) -> Estimate:
    """DM: without an interval, for nothing in the log says how wrong the reward model is."""
    parts = _parts(sample)
    refused = _refused(sample, parts) or "the direct method has no valid interval: the error of its reward model is not in the log"
    return _estimate("dm", sample, parts, parts.direct, None, refused)


def ips(sample: Sample, clip: float | None = None) -> Estimate:
    """IPS. With `clip` it is biased towards 0 by what is cut."""
    parts = _parts(sample)
    weights = parts.weights if clip is None else np.minimum(parts.weights, clip)
    terms = parts.v * weights * parts.rewards
    return _estimate("ips", sample, parts, terms, terms)


def snips(sample: Sample) -> Estimate:
    """SNIPS, by the delta method: the influence of a row is v w (r - estimate) / mean(v w)."""
    parts = _parts(sample)
    weights = parts.v * parts.weights
    total = weights.mean() if len(weights) else 0.0
    if not total > 0:
        return _estimate("snips", sample, parts, weights, None)
    value = float((weights * parts.rewards).mean() / total)
    terms = weights * (parts.rewards - value) / total
    return _estimate("snips", sample, parts, terms + value, terms)


def dr(sample: Sample) -> Estimate:
    """DR: unbiased whenever the propensities are right, whatever the reward model."""
    parts = _parts(sample)
    corrections = parts.v * parts.weights * parts.residuals
    return _estimate("dr", sample, parts, parts.direct + corrections, corrections)


def switch_dr(sample: Sample, threshold: float | None = None) -> Estimate:
    """SWITCH-DR. Its interval leaves out the bias where the weights are above the threshold."""
    parts = _parts(sample)
    if threshold is None:
        threshold = _threshold(sample, parts)
    corrections = np.where(parts.weights <= threshold, parts.v * parts.weights * parts.residuals, 0.0)
    return _estimate("switch", sample, parts, parts.direct + corrections, corrections)


def gain(sample: Sample) -> Estimate:
    """Target minus the policy of the log, by DR on the same rows."""
    parts = _parts(sample)
    terms, corrections = differences(sample)
    return _estimate("gain", sample, parts, terms, corrections)


def differences(sample: Sample) -> tuple[Floats, Floats]:
    """Each row's part of the gain, whose mean it is, and the correction in it; what a confidence sequence runs over, in the order of the
    log."""
    parts = _parts(sample)
    corrections = parts.v * (parts.weights - 1.0) * parts.residuals
    return parts.direct - parts.own + corrections, corrections


def effective(weights: Floats, units: Ints) -> float:
    """ESS of units."""
    summed = np.bincount(units, weights)
    squares = float(summed @ summed)
    return float(summed.sum()) ** 2 / squares if squares > 0 else 0.0


def codes(units: Sequence[str]) -> Ints:
    """A small whole number for each distinct unit; one of its own for each that is empty."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(unit or f"\0{row}", len(known)) for row, unit in enumerate(units)], dtype=np.int64)


def _parts(sample: Sample) -> _Parts:
    rows = np.arange(len(sample.chosen))
    labelled = ~np.isnan(sample.rewards)
    rewards = np.where(labelled, sample.rewards, 0.0)
    predicted = sample.predicted[rows, sample.chosen]
    return _Parts(
        direct=(sample.target * sample.predicted).sum(axis=1),
        own=(sample.logging * sample.predicted).sum(axis=1),
        weights=sample.target[rows, sample.chosen] / sample.propensities,
        v=np.where(labelled, 1.0 / sample.labelling, 0.0),
        rewards=rewards,
        residuals=np.where(labelled, rewards - predicted, 0.0),
    )


def _estimate(
    method: Method, sample: Sample, parts: _Parts, terms: Floats, corrections: Floats | None, refused: str | None = None
) -> Estimate:
    """terms: (n,), whose mean is the estimate. corrections: (n,), what the weights have a part in."""
    refused = refused or _refused(sample, parts)
    units = int(sample.units.max()) + 1 if len(sample.units) else 0
    value = se = df = low = high = None
    meaningless = uncovered(sample) > MAX_UNCOVERED or not (parts.v > 0).any() or (method == "snips" and corrections is None)
    if not meaningless:
        value = float(terms.mean())
    if refused is None and value is not None and corrections is not None:
        se, df = spread(terms, corrections, sample.units)
        half = quantile(0.5 + LEVEL / 2, df) * se
        low, high = value - half, value + half
    return Estimate(
        method=method,
        value=value,
        low=low,
        high=high,
        se=se,
        df=df,
        ess=effective(parts.v * parts.weights, sample.units),
        rows=len(sample.chosen),
        units=units,
        labels=int((parts.v > 0).sum()),
        uncovered=uncovered(sample),
        refused=refused,
    )


def spread(terms: Floats, corrections: Floats, units: Ints) -> tuple[float, float]:
    """Standard error of the mean of the terms, robust to units, and its degrees of freedom. Two units at least."""
    influence = np.bincount(units, terms - terms.mean())
    count = len(influence)
    se = float(np.sqrt(influence @ influence * count / (count - 1))) / len(terms)
    c = np.bincount(units, corrections) ** 2
    squares = float(c @ c)
    df = float(c.sum()) ** 2 / squares if squares > 0 else count - 1.0
    return se, min(df, count - 1.0)


def uncovered(sample: Sample) -> float:
    """Share of the target's mass where the log's policy has none."""
    return float(np.where(sample.logging > 0, 0.0, sample.target).sum() / max(1, len(sample.target)))


def _refused(sample: Sample, parts: _Parts) -> str | None:
    labels = int((parts.v > 0).sum())
    if labels < MIN_LABELS:
        return f"too few labels: {labels} of {len(sample.chosen)} rows, of at least {MIN_LABELS}"
    if sample.units.max() < 1:
        return "all rows belong to one unit"
    mass = uncovered(sample)
    if mass > MAX_UNCOVERED:
        return f"no support: {mass:.1%} of what the target would choose was never chosen in the log; it needs an exploration floor"
    ess = effective(parts.v * parts.weights, sample.units)
    if ess < MIN_ESS:
        return f"too little overlap: the effective sample size is {ess:.1f}, of at least {MIN_ESS:.0f}"
    return None


def _threshold(sample: Sample, parts: _Parts) -> float:
    """M by Wang, Agarwal & Dudik (2017): least variance of the mean + (target's mass above M)^2, which bounds the bias for rewards in
    0..1."""
    used = parts.weights[parts.v * parts.weights > 0]
    if len(used) < 2:
        return float("inf")
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(sample.target > 0, sample.target / sample.logging, 0.0)
    best, least = float("inf"), float("inf")
    for threshold in (float("inf"), *np.unique(np.quantile(used, np.linspace(0.05, 0.95, 19))).tolist()):
        corrections = np.where(parts.weights <= threshold, parts.v * parts.weights * parts.residuals, 0.0)
        se, _ = spread(parts.direct + corrections, corrections, sample.units)
        bias = float(np.where(ratios > threshold, sample.target, 0.0).sum() / len(sample.target))
        if se**2 + bias**2 < least:
            best, least = threshold, se**2 + bias**2
    return best
