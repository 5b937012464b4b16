"""The decoding suite: how many samples a request takes, and what stopping early costs; off line, on published counts and on simulations.

What is measured stands in policies/bench/decoding.py; here it becomes figures, tables and files.

    vote_*, price_gain_*   votes that stop early          verifier_*   an exact verifier          optscale_*   a scorer
    joint_saved_*          policies that learn which model, strategy and number of answers to take
"""

from __future__ import annotations

import asyncio
import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from gateway.bench.blocks import MissingFigureError, Progress
from gateway.bench.ctools import BenchError
from gateway.bench.curves import curves
from gateway.bench.report import Bar, Report, commit, machine, versions
from policies.bench import attempts, bootstrap, decoding, passes, recordings, samples, scoring
from policies.bench.attempts import Attempt
from policies.bench.bootstrap import Interval
from policies.bench.decoding import Equal, Passed, Sizes, Voted
from policies.bench.joint import Learned
from policies.bench.passes import Counts
from policies.bench.scoring import OURS, THEIRS, Scored
from policies.bench.voting import DEFAULT

Array = npt.NDArray[np.float64]
Figure = Callable[[], Interval]

_TOKENS: Final[Mapping[str, float]] = {"mid": 0.42, "easy": 0.39, "weak": 0.58, "scattered": 0.68, "maths": 0.67}
_CALLS: Final[Mapping[str, float]] = {"humaneval": 0.27, "game24_cot": 0.56, "game24_direct": 0.65}
BARS: Final[Mapping[str, Bar]] = {
    "vote_loss_max": Bar(most=0.25),
    "vote_loss_mean": Bar(most=0.12),
    **{f"vote_tokens_{name}": Bar(most=most) for name, most in _TOKENS.items()},
    "vote_rounds": Bar(most=4.0),
    "vote_rounds_mid": Bar(most=3.0),
    "price_gain_mid": Bar(least=2.0),
    "price_gain_scattered": Bar(least=1.0),
    **{f"verifier_calls_{name}": Bar(most=most) for name, most in _CALLS.items()},
    "optscale_worst_gap": Bar(most=0),
    "optscale_samples_ratio": Bar(most=0.35),
}
"""Of the profiles, sets and families that come with the suite; none of them is meant for samples of the user's own."""

OWN: Final = "samples of one's own were given: only what is measured on them is there"
EQUAL: Final = 3
_TAKEN: Final = frozenset({"max", "mean"})


@dataclass(frozen=True)
class Measured:
    """All that a run saw. where: the machine, before. data: input -> SHA-256. voted, passed, scored, joint: what could be measured. names:
    of the questions of a profile or set; without them they are numbered. mute: sets of which no answer can vote. replayed: by way to
    answer, recorded answers."""

    sizes: Sizes
    where: Mapping[str, Any]
    voted: Sequence[Voted]
    passed: Sequence[Passed]
    scored: Mapping[str, Sequence[Scored]]
    data: Mapping[str, str]
    names: Mapping[str, Sequence[str]]
    joint: Sequence[Learned] = ()
    own: bool = False
    mute: Sequence[str] = ()
    replayed: Mapping[str, Sequence[Attempt]] = field(default_factory=dict)


@dataclass(frozen=True)
class Folders:
    """Files and folders, each may be None. samples: of one's own. raw, out: where CSVs and plots go."""

    samples: Path | None = None
    raw: Path | None = None
    out: Path | None = None


def run(quick: bool, progress: Progress, folders: Folders, sizes: Sizes | None = None) -> Report:
    """Measure and report. Raises BenchError for samples that cannot be read."""
    sizes = sizes or (decoding.QUICK if quick else Sizes())
    measured = measure(sizes, progress) if folders.samples is None else measure_own(sizes, folders.samples)
    if folders.raw is not None:
        write_raw(measured, folders.raw)
    if folders.out is not None:
        write_plots(measured, folders.out)
    return report(measured)


def measure(sizes: Sizes, progress: Progress) -> Measured:
    """Everything that comes with the suite."""
    where = machine()
    found = decoding.voted(sizes, progress)
    scored = decoding.scored(sizes, progress)
    names = [f"{seed}:{question}" for seed in sizes.seeds for question in range(sizes.questions)]
    joint = decoding.joint(sizes, progress)
    progress("recorded answers: replayed")
    replayed = asyncio.run(recordings.attempted(recordings.read(), recordings.ORDERS if sizes == Sizes() else 1))
    data = {passes.FILE.name: passes.digest(), recordings.FILE.name: recordings.digest()}
    named = {each.name: names for each in found}
    return Measured(sizes, where, found, decoding.published(), scored, data, named, joint, replayed=replayed)


def measure_own(sizes: Sizes, file: Path) -> Measured:
    """The same rules on samples of the user's own. Raises BenchError."""
    where = machine()
    try:
        read = samples.read(file)
    except (OSError, samples.SamplesError) as error:
        raise BenchError(str(error)) from None
    if taken := _TAKEN & set(read):
        raise BenchError(f"{file}: a set cannot be called `{min(taken)}`, that is a figure over all of them")
    answers = {name: each.answers for name, each in read.items()}
    mute = [name for name, given in answers.items() if (given.keys < 0).all()]
    voted = [decoding.own(name, given, sizes) for name, given in answers.items() if name not in mute]
    passed = [decoding.own_passed(name, Counts(given.sizes, given.right.sum(axis=1))) for name, given in answers.items()]
    data = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}
    names = {name: each.questions for name, each in read.items()}
    return Measured(sizes, where, voted, passed, {}, data, names, own=True, mute=mute)


def report(measured: Measured) -> Report:
    """As JSON and tables."""
    found, reasons = intervals_of(measured)
    shown = tables_of(measured, found)
    return Report(
        suite="decoding",
        commit=commit(),
        seeds=sorted({*measured.sizes.seeds, *measured.sizes.score_seeds}),
        data=dict(measured.data),
        figures={name: None if of is None else of.value for name, of in found.items()},
        tables={
            "bars": {} if measured.own else BARS,
            "reasons": reasons,
            **shown,
            "shown": list(shown),
            "notes": notes_of(measured),
            "sizes": measured.sizes,
            "machine": measured.where,
            "versions": versions(("numpy",)),
        },
    )


def intervals_of(measured: Measured) -> tuple[dict[str, Interval | None], dict[str, str]]:
    """The figures by their public names, each with its interval, and for those that are None the reason."""
    values: dict[str, Interval | None] = {}
    reasons: dict[str, str] = {}
    made = {**_voting(measured), **_verifying(measured.passed), **_scoring(measured.scored), **_joint(measured.joint)}
    for name, compute in made.items():
        try:
            values[name] = compute()
        except MissingFigureError as error:
            values[name] = None
            reasons[name] = str(error)
    missing = [name for name in BARS if name not in values]
    return values | dict.fromkeys(missing), reasons | dict.fromkeys(missing, OWN)


def _voting(measured: Measured) -> Mapping[str, Figure]:
    found, mute = measured.voted, measured.mute
    losses: dict[str, Figure] = {each.name: partial(_mean, [each.loss(DEFAULT)]) for each in found}
    made: dict[str, Figure] = {
        "vote_loss_max": partial(_worst, losses.values()),
        "vote_loss_mean": partial(_mean, [each.loss(DEFAULT) for each in found]),
    }
    made |= {f"vote_loss_{name}": loss for name, loss in losses.items()}
    made |= {f"vote_tokens_{each.name}": partial(bootstrap.ratio, each.rules[DEFAULT].tokens, each.full.tokens) for each in found}
    made["vote_rounds"] = partial(_mean, [each.rules[DEFAULT].rounds for each in found])
    made |= {f"vote_rounds_{each.name}": partial(_mean, [each.rules[DEFAULT].rounds]) for each in found}
    made |= {f"price_gain_{each.name}": partial(_gain, each) for each in found}
    return made | {f"{figure}_{name}": _unreadable for name in mute for figure in ("vote_loss", "vote_tokens", "vote_rounds", "price_gain")}


def _verifying(found: Sequence[Passed]) -> Mapping[str, Figure]:
    some: dict[str, Figure] = {f"verifier_calls_{each.name}": partial(_calls, each.counts, passes.SHARE) for each in found}
    return some | {f"verifier_calls_all_{each.name}": partial(_calls, each.counts, 1.0) for each in found}


def _scoring(found: Mapping[str, Sequence[Scored]]) -> Mapping[str, Figure]:
    if not found:
        return {}
    confidences: dict[str, Figure] = {f"optscale_confidence_{name}": partial(_confidence, each) for name, each in found.items()}
    fewer: dict[str, Figure] = {f"optscale_samples_{name}": partial(_fewer, each) for name, each in found.items()}
    return {
        "optscale_worst_gap": partial(_worst, [partial(_gap, each) for each in found.values()]),
        "optscale_samples_ratio": partial(_worst, fewer.values()),
        **confidences,
        **fewer,
    }


def _joint(found: Sequence[Learned]) -> Mapping[str, Figure]:
    some: dict[str, Figure] = {}
    for each in found:
        name = f"joint_saved_{each.world}_{each.policy}"
        some[name] = partial(decoding.joint_saved, found, each.world, each.policy)
        some[f"{name}_{decoding.FIRST}"] = partial(decoding.joint_saved, found, each.world, each.policy, decoding.FIRST)
    return some


def _worst(figures: Iterable[Figure]) -> Interval:
    """The largest, with its own interval."""
    found = [compute() for compute in figures]
    return max(found, key=lambda of: (of.value, of.high)) if found else _unreadable()


def _unreadable() -> NoReturn:
    raise MissingFigureError("no answer of the samples can vote: `answer` is empty everywhere")


def _mean(parts: Sequence[Array]) -> Interval:
    """The mean of means, each of its own questions."""
    if not parts:
        _unreadable()
    resampled = np.mean([bootstrap.means(values, seed) for seed, values in enumerate(parts)], axis=0)
    return bootstrap.interval(float(np.mean([values.mean() for values in parts])), resampled)


def _gain(found: Voted) -> Interval:
    if EQUAL not in found.equal:
        raise MissingFigureError(f"no question has more than {EQUAL} samples")
    return bootstrap.mean(found.equal[EQUAL].gain)


def _calls(counts: Counts, share: float) -> Interval:
    if not counts.passes.any():
        raise MissingFigureError("no sample is right")
    return passes.calls_interval(counts, share)


def _confidence(found: Sequence[Scored]) -> Interval:
    return bootstrap.mean(scoring.reached(found, OURS))


def _gap(found: Sequence[Scored]) -> Interval:
    target, reached = found[0].target, scoring.reached(found, OURS)
    return bootstrap.interval(float(target.gap(reached.mean())), target.gap(bootstrap.means(reached)))


def _fewer(found: Sequence[Scored]) -> Interval:
    return bootstrap.ratio(scoring.samples(found, OURS), scoring.samples(found, THEIRS))


def tables_of(measured: Measured, figures: Mapping[str, Interval | None]) -> dict[str, Any]:
    """What people are shown."""
    bounds = {name: {"value": of.value, "from": of.low, "to": of.high} for name, of in figures.items() if of is not None}
    found: dict[str, Any] = {"95 % interval": bounds}
    found |= {f"voting, {each.name}: rule": decoding.voting_table(each) for each in measured.voted}
    found["one price for all"] = decoding.equal_table(measured.voted)
    found |= {f"verifier, {each.name}: stop": decoding.passed_table(each) for each in measured.passed}
    found |= {f"scores, {name}: rule": scoring.table(each) for name, each in measured.scored.items()}
    found["efficiency of who chooses, answers"] = decoding.efficiency_table(measured.voted, measured.passed)
    if measured.joint:
        found["joint plans: regret of a request"] = decoding.joint_table(measured.joint)
    counts = {one.name: one.counts for one in measured.voted} | {one.name: one.counts for one in measured.passed}
    if measured.replayed:
        found["recorded answers, small models: way"] = attempts.by_way(measured.replayed, "single", timed=False)
        found["recorded answers, right by family"] = attempts.by_family(measured.replayed)
    found["pass@k, without bias"] = decoding.pass_table(counts)
    return found


def notes_of(measured: Measured) -> list[str]:
    """What a reader of the figures has to know."""
    sizes = measured.sizes
    notes = [
        "Intervals are by bootstrap over questions, each with all its samples; the worst of several has its own. Losses and gains are in "
        "points of accuracy."
    ]
    if measured.own:
        notes.append(f"Own samples: voting over {sizes.orders} orders of them; the hazard's prior is fitted to the same samples.")
    else:
        notes.append(
            f"Voting: simulated answers, {sizes.questions:,} questions of each profile for each of {len(sizes.seeds)} seeds; weak, "
            "scattered and maths go beyond the 10, 10 and 5 answers that they were fitted to."
        )
    notes.append(
        "A vote's loss and tokens are against the vote over the first 20 of the same answers, or all if there are fewer; `uniform`: the "
        "loss of equally many answers for everyone at the same tokens. One price for all: at least one answer each, at the tokens of the "
        "number named."
    )
    notes.append(
        "Verifier: expectations over all orders of the samples; calls are over those of drawing every sample, problems that nothing solves "
        "included; the cap for 95 % is chosen on the same counts. `fixed`: solved by equally many calls for every problem; `needs`: such "
        "calls for as much."
    )
    if measured.scored:
        notes.append(
            f"Scores: {sizes.scored:,} questions of a family for each of {len(sizes.score_seeds)} seeds, {sizes.calibration} calibration "
            f"questions of {scoring.CALIBRATION} scores; confidence and samples are of questions whose true N* is at most 64; "
            f"optscale_samples is over those of OptScale's rule (`{THEIRS}`), its ratio the worst. optscale_worst_gap: how far a "
            f"confidence lies outside its target - {scoring.BELOW:g} and + {scoring.ABOVE:g}."
        )
    if measured.joint:
        notes.append(
            f"Joint plans: {sizes.joint_requests:,} requests, {sizes.joint_orders} times, each with questions of its own; three models "
            "with 1, 4, 8 and 16 answers. Regret: quality given up, less prices. apart: each plan is an arm of its own; level: plans share "
            "their model's level; curves: response curves, too. joint_saved: the share of the regret of separate arms that curves save."
        )
    if measured.replayed:
        notes.append(
            f"Recorded answers: of SmolLM2-135M-Instruct and of the same with rounded weights (weak), 8 samples of each of 240 small "
            f"questions, replayed through the strategies in up to {recordings.ORDERS} orders; from, to: Wilson's interval over questions; "
            "tokens are of a question; USD at made-up prices, a quarter for weak; x single: cost-of-pass, how many times that of one call."
        )
    return notes


def write_raw(measured: Measured, folder: Path) -> None:
    """What the figures are computed from, as CSV. Questions of a simulation are SEED:NUMBER, of scores LEVEL:SEED:NUMBER."""
    folder.mkdir(parents=True, exist_ok=True)
    names, voted, passed = measured.names, measured.voted, measured.passed
    votes = (row for each in voted for row in _rows(each.name, _votes(each), names))
    header = ("profile", "question", "samples", "rounds", "tokens", "correct", "full_tokens", "full_correct")
    _write(folder / "vote.csv", header, votes)
    prices = (row for each in voted if EQUAL in each.equal for row in _rows(each.name, _prices(each.equal[EQUAL]), names))
    _write(folder / "price.csv", ("profile", "question", "tokens", "correct", "uniform_tokens", "uniform_correct"), prices)
    calls = (row for each in passed for row in _rows(each.name, _tries(each.counts), names))
    _write(folder / "verifier.csv", ("set", "question", "calls", "solved", "solvable"), calls)
    counts = (row for each in passed for row in _rows(each.name, (each.counts.samples, each.counts.passes), names))
    _write(folder / "passes.csv", ("set", "question", "samples", "passes"), counts)
    regrets = ((each.world, each.policy, each.way, *row) for each in measured.joint for row in _regrets(each))
    if measured.joint:
        header = ("world", "policy", "way", "order", f"regret_{decoding.FIRST}", "regret", f"best_{decoding.FIRST}", "best")
        _write(folder / "joint.csv", header, regrets)
    replayed = (
        (way, each.family, each.number, int(each.right), each.calls, each.prompt, each.tokens, each.cost)
        for way, of in measured.replayed.items()
        for each in of
    )
    if measured.replayed:
        _write(folder / "replayed.csv", ("way", "family", "question", "right", "calls", "prompt", "tokens", "usd"), replayed)
    for file, rule in (("optscale.csv", OURS), ("optscale_normal.csv", THEIRS)) if measured.scored else ():
        scores = (row for found in measured.scored.values() for each in found for row in _scores(each, rule))
        _write(folder / file, ("family", "target", "question", "samples", "reached", "reachable"), scores)


def _rows(name: str, columns: Sequence[npt.NDArray[Any]], names: Mapping[str, Sequence[str]]) -> Iterator[Sequence[object]]:
    """Each with its set and its question's name before it, or its number."""
    known = names.get(name)
    for number, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        yield name, known[number] if known else number, *row


def _votes(found: Voted) -> Sequence[Array]:
    rule = found.rules[DEFAULT]
    return rule.samples, rule.rounds, rule.tokens, rule.right, found.full.tokens, found.full.right


def _prices(found: Equal) -> Sequence[Array]:
    return found.priced_tokens, found.priced, found.uniform_tokens, found.uniform


def _tries(found: Counts) -> Sequence[npt.NDArray[Any]]:
    calls, solved = passes.within(found, passes.frontier(found).cap())
    return calls, solved, (found.passes > 0).astype(int)


def _scores(found: Scored, rule: str) -> Iterator[Sequence[object]]:
    target, drawn = found.target, found.rules[rule]
    columns = (drawn.samples, drawn.reached.astype(int), found.within.astype(int))
    for question, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        yield target.family, target.confidence, f"{target.level:g}:{found.seed}:{question}", *row


def _regrets(found: Learned) -> Iterator[Sequence[object]]:
    first = decoding.FIRST
    columns = (found.mean(first), found.mean(), found.best[:, :first].mean(axis=1), found.best.mean(axis=1))
    for order, row in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        yield order, *row


def _write(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(header)
        writer.writerows(rows)


def write_plots(measured: Measured, folder: Path) -> None:
    """The frontier of solved against calls, of each set."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in measured.passed:
        line = passes.frontier(each.counts)
        calls, solved = passes.oracle(each.counts)
        series = {
            "first pass, cap by hazard": list(zip((line.calls / line.uniform).tolist(), line.solved.tolist(), strict=True)),
            "as many for every problem": list(zip((line.fixed / line.uniform).tolist(), line.solved.tolist(), strict=True)),
            "who knows the pass rates": list(zip((calls / line.uniform).tolist(), solved.tolist(), strict=True)),
        }
        drawn = curves(f"Solved against calls, {each.name}", "calls, share of all samples", "solved, share of problems", series)
        (folder / f"decoding_{quote(each.name, safe=' ')}.svg").write_text(drawn)
