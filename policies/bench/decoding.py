"""The whole decoding suite: the rules that decide how many samples a request takes, off line.

voted    votes that stop early, on simulated answers or on the user's own (answers.py, voting.py, samples.py)
passed   an exact verifier, on published pass counts or the user's own (passes.py)
scored   a scorer, on simulated scores (scores.py, scoring.py)
joint    policies that learn which model, strategy and number of answers to take, on simulated answers (joint.py)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from models.response import headroom
from policies.bench import answers, bootstrap, passes, scores, scoring, voting
from policies.bench.answers import Answers
from policies.bench.bootstrap import Interval
from policies.bench.joint import WORLDS, Learned, learned
from policies.bench.passes import Counts
from policies.bench.scoring import Scored
from policies.bench.voting import Replayed
from policies.pricing import hazard
from policies.pricing.hazard import Prior
from policies.pricing.stopping import CAP

Progress = Callable[[str], None]
Table = Mapping[str, Mapping[str, float | None]]
Array = npt.NDArray[np.float64]

EQUAL: Final = (3, 5)
"""Samples a question that one price for all is compared with."""
TRIES: Final = (3, 4, 8, 16, 20)
PASS_AT: Final = (1, 2, 5, 10, 20, 50, 100)
HAZARDS: Final = (0.1, 0.05, 0.02, 0.01, 0.005, 0.003, 0.002, 0.001)
_SHIPPED: Final[Mapping[str, str]] = {"humaneval": "code", "game24_cot": "puzzles", "game24_direct": "puzzles, direct"}


@dataclass(frozen=True)
class Sizes:
    """How much is measured. questions: of a profile and seed; seeds: of profiles; scored, calibration: questions of a family; score_seeds:
    of families; orders: of one's own samples. joint_requests: that a policy serves; joint_orders: how many times."""

    questions: int = 3_000
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    scored: int = 2_000
    calibration: int = 300
    score_seeds: tuple[int, ...] = (1, 2, 3)
    orders: int = 20
    joint_requests: int = 2_000
    joint_orders: int = 20


QUICK: Final = Sizes(200, (1,), scored=100, calibration=60, score_seeds=(1,), orders=3, joint_requests=60, joint_orders=2)
FIRST: Final = 500
"""Requests after which joint plans are looked at, too."""


@dataclass(frozen=True)
class Equal:
    """One price for all questions at the tokens of so many answers for each: right and tokens of both, (questions,)."""

    priced: Array
    uniform: Array
    priced_tokens: Array
    uniform_tokens: Array

    @property
    def gain(self) -> Array:
        """In points."""
        return 100.0 * (self.priced - self.uniform)


@dataclass(frozen=True)
class Voted:
    """Rules on the questions of a profile, seeds one after the other. cap: answers of the full vote. full: that vote; grown: a vote over 0,
    1, ... cap answers for everyone, right and tokens; counts: right answers of each question."""

    name: str
    cap: int
    rules: Mapping[str, Replayed]
    full: Replayed
    equal: Mapping[int, Equal]
    grown: tuple[Array, Array]
    counts: Counts

    def loss(self, rule: str) -> Array:
        """Points behind the full vote, (questions,)."""
        return 100.0 * (self.full.right - self.rules[rule].right)

    def uniform_loss(self, rule: str) -> float:
        """Points behind the full vote that a vote over equally many answers for everyone is, at the rule's tokens."""
        right, tokens = self.grown
        spent = float(self.rules[rule].tokens.mean())
        return round(100.0 * (float(self.full.right.mean()) - float(np.interp(spent, tokens, right))), 9)


@dataclass(frozen=True)
class Passed:
    """An exact verifier on a set. prior: of its pass rates, what ships where something ships."""

    name: str
    counts: Counts
    prior: Prior


def voted(sizes: Sizes, progress: Progress) -> list[Voted]:
    """Every profile."""
    found = []
    for number, (name, profile) in enumerate(answers.PROFILES.items()):
        parts = []
        for seed in sizes.seeds:
            made = answers.simulate(profile, sizes.questions, CAP, np.random.default_rng([seed, number]))
            parts.append(vote(name, [made]))
        found.append(joined(parts))
        progress(f"voting: {name}, {len(found[-1].full.right):,} questions")
    return found


def own(name: str, given: Answers, sizes: Sizes) -> Voted:
    """The user's answers, in several orders."""
    rng = np.random.default_rng(sizes.seeds[0])
    return vote(name, [given, *(given.shuffled(rng) for _ in range(sizes.orders - 1))])


def vote(name: str, orders: Sequence[Answers]) -> Voted:
    """Every rule on the same answers in these orders."""
    given = orders[0]
    cap = min(CAP, int(given.sizes.max()))
    typical = float(given.tokens.sum() / max(1, given.sizes.sum()))
    courses = [voting.course(each, cap) for each in orders]
    rules = {rule: voting.replay(courses, stop) for rule, stop in voting.rules(typical, cap).items()}
    full = voting.uniform(courses, cap)
    right = np.mean([_along(each.right, each.sizes).mean(axis=0) for each in courses], axis=0)
    tokens = np.mean([each.tokens.mean(axis=0) for each in courses], axis=0)
    equal = {n: _equal(courses, n, typical) for n in EQUAL if n < cap}
    counts = Counts(given.sizes, given.right.sum(axis=1))
    return Voted(name, cap, rules, full, equal, (right, tokens), counts)


def _along(values: Array, sizes: npt.NDArray[np.int64]) -> Array:
    """Each row stays as it is after its last answer: (questions, n + 1)."""
    return np.take_along_axis(values, np.minimum(np.arange(values.shape[1]), sizes[:, None]), axis=1)


def _equal(courses: Sequence[voting.Course], n: int, typical: float) -> Equal:
    found = []
    for seen in courses:
        at, flat = np.arange(len(seen.sizes)), np.minimum(n, seen.sizes)
        tokens = seen.tokens[at, flat]
        samples = voting.priced(seen, float(tokens.sum()), typical)
        found.append((seen.right[at, samples], seen.right[at, flat], seen.tokens[at, samples], tokens))
    return Equal(*(np.mean(column, axis=0) for column in zip(*found, strict=True)))


def joined(parts: Sequence[Voted]) -> Voted:
    """Several sets of questions as one."""
    first = parts[0]
    grown = (np.mean([each.grown[0] for each in parts], axis=0), np.mean([each.grown[1] for each in parts], axis=0))
    counts = Counts(
        np.concatenate([each.counts.samples for each in parts]),
        np.concatenate([each.counts.passes for each in parts]),
    )
    return Voted(
        first.name,
        first.cap,
        {rule: _replayed([each.rules[rule] for each in parts]) for rule in first.rules},
        _replayed([each.full for each in parts]),
        {n: _equals([each.equal[n] for each in parts]) for n in first.equal},
        grown,
        counts,
    )


def _replayed(parts: Sequence[Replayed]) -> Replayed:
    columns = zip(*((each.right, each.tokens, each.samples, each.waits) for each in parts), strict=True)
    return Replayed(*(np.concatenate(column, axis=-1) for column in columns))


def _equals(parts: Sequence[Equal]) -> Equal:
    columns = zip(*((each.priced, each.uniform, each.priced_tokens, each.uniform_tokens) for each in parts), strict=True)
    return Equal(*(np.concatenate(column) for column in columns))


def published() -> list[Passed]:
    """The published pass counts, with the priors that ship."""
    return [Passed(name, counts, hazard.PRIORS[_SHIPPED[name]]) for name, counts in passes.published().items()]


def own_passed(name: str, counts: Counts) -> Passed:
    """The user's, with a prior fitted to them."""
    return Passed(name, counts, hazard.fit(counts.pairs))


def scored(sizes: Sizes, progress: Progress) -> dict[str, list[Scored]]:
    """Every target: its name -> a result for each seed."""
    found: dict[str, list[Scored]] = {target.name: [] for target in scoring.TARGETS}
    for family in scores.FAMILIES:
        for seed in sizes.score_seeds:
            for each in scoring.scored(family, seed, sizes.scored, sizes.calibration):
                found[each.target.name].append(each)
        progress(f"scores: {family}")
    return found


def efficiency_table(voted: Sequence[Voted], passed: Sequence[Passed]) -> Table:
    """The efficiency of a check and of a vote (models/response.py) over so many answers, by what these gain."""
    rows: dict[str, dict[str, float | None]] = {}
    of: dict[str, Counts] = {each.name: each.counts for each in voted} | {each.name: each.counts for each in passed}
    for name, counts in of.items():
        rows[f"{name}, check"] = {str(n): _efficiency(passes.pass_at(counts, 1), passes.pass_at(counts, n), n) for n in TRIES}
    for each in voted:
        right = each.grown[0].tolist()
        rows[f"{each.name}, vote"] = {str(n): _efficiency(right[1], right[n], n - 1) if n < len(right) else None for n in TRIES}
    return rows


def _efficiency(one: float | None, several: float | None, tries: int) -> float | None:
    if one is None or several is None or not (room := headroom(one, tries)[0]):
        return None
    return (several - one) / room


def joint(sizes: Sizes, progress: Progress) -> list[Learned]:
    """Every world, policy and way."""
    found: list[Learned] = []
    for world in WORLDS:
        found += learned(world, sizes.joint_requests, sizes.joint_orders)
        progress(f"joint plans: {world.name}")
    return found


def joint_saved(found: Sequence[Learned], world: str, policy: str, requests: int | None = None) -> Interval:
    """The share of the regret of separate arms that the curves save."""
    curves, apart = (
        next(each for each in found if (each.world, each.policy, each.way) == (world, policy, way)) for way in ("curves", "apart")
    )
    left = bootstrap.ratio(curves.mean(requests), apart.mean(requests))
    return Interval(1.0 - left.value, 1.0 - left.high, 1.0 - left.low)


def joint_table(found: Sequence[Learned]) -> Table:
    """Each world, policy and way of sharing: regret of a request, and the share of the best plan."""
    rows: dict[str, dict[str, float | None]] = {}
    for each in found:
        first, all_ = bootstrap.mean(each.mean(FIRST)), bootstrap.mean(each.mean())
        rows[f"{each.world}, {each.policy}, {each.way}"] = {
            f"first {FIRST}": first.value,
            "low": first.low,
            "high": first.high,
            "best plan": each.share(FIRST),
            "all": all_.value,
            "from": all_.low,
            "to": all_.high,
            "of all": each.share(),
        }
    return rows


def voting_table(found: Voted) -> Table:
    """Every rule of a profile. Intervals are of the loss; `uniform` is the loss of equally many answers for everyone at the same tokens."""
    return {rule: _voting_row(found, rule) for rule in found.rules}


def _voting_row(found: Voted, rule: str) -> dict[str, float | None]:
    replayed = found.rules[rule]
    loss = bootstrap.mean(found.loss(rule))
    right = float(replayed.right.sum())
    return {
        "right": float(replayed.right.mean()),
        "loss, points": loss.value,
        "from": loss.low,
        "to": loss.high,
        "uniform": found.uniform_loss(rule),
        "tokens": float(replayed.tokens.sum() / found.full.tokens.sum()),
        "samples": float(replayed.samples.mean()),
        "rounds": float(replayed.rounds.mean()),
        "p95": float(np.quantile(replayed.waits, 0.95)),
        "tokens per right": float(replayed.tokens.sum()) / right if right else None,
    }


def equal_table(found: Sequence[Voted]) -> Table:
    """One price for all against the same number of answers for everyone."""
    rows: dict[str, dict[str, float | None]] = {}
    for each in found:
        for n, equal in each.equal.items():
            gain = bootstrap.mean(equal.gain)
            rows[f"{each.name}, {n}"] = {
                "uniform": float(equal.uniform.mean()),
                "one price": float(equal.priced.mean()),
                "gain, points": gain.value,
                "from": gain.low,
                "to": gain.high,
                "tokens": float(equal.priced_tokens.sum() / equal.uniform_tokens.sum()),
            }
    return rows


def passed_table(found: Passed) -> Table:
    """The frontier of a set, a least hazard a row: the share of what can be solved that is, and for which share of all calls. fixed: solved
    by equally many calls for every problem; needs: such calls for as much; oracle: who knows the counts."""
    line = passes.frontier(found.counts)
    most = len(line.solved) - 1
    caps = dict(zip((f"hazard {each:g}" for each in HAZARDS), passes.caps_by_hazard(found.prior, most, HAZARDS), strict=True))
    rows = caps | {"95 % of the solvable": line.cap(), "first pass, no cap": most}
    calls, solved = passes.oracle(found.counts)
    table: dict[str, dict[str, float | None]] = {}
    for name, cap in sorted(rows.items(), key=lambda row: row[1]):
        if cap < 1:
            continue
        part = float(line.solved[cap])
        needs = int(np.argmax(line.solved >= part - 1e-12))
        table[name] = {
            "cap": float(cap),
            "solved": part / line.solvable if line.solvable else None,
            "calls": line.calls_share(cap),
            "fixed": float(np.interp(line.calls[cap], line.fixed, line.solved)) / line.solvable if line.solvable else None,
            "needs": float(line.fixed[needs]) / line.uniform,
            "oracle needs": float(np.interp(part, solved, calls)) / line.uniform,
        }
    return table


def pass_table(counts: Mapping[str, Counts]) -> Table:
    """pass@k without bias."""
    return {name: {f"pass@{k}": passes.pass_at(found, k) for k in PASS_AT} for name, found in counts.items()}
