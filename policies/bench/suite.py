"""The whole routing suite: what is measured, in which sizes, one part after the other.

offline    RouteLLM's pairs (routellm.py)        online    learning while serving (online.py)
logged     off-policy intervals (ope.py)         costs     CPU time and memory (costs.py)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from policies.bench import costs, data, features, heads, ope, routellm
from policies.bench.costs import Remembered
from policies.bench.data import Pair
from policies.bench.online import CATEGORY, TOPICS, Course, Inferred, Learner, Order, all_orders, fresh, inferred, one_hot
from policies.bench.ope import Cell, Logging, Outcomes
from policies.bench.routellm import Set, Trial
from policies.bench.vectors import Library, Vectors
from policies.bench.workers import workers
from policies.offpolicy.matrix import Matrix
from policies.offpolicy.simulate import Setting

Progress = Callable[[str], None]

# Weights that a classifier of topics is held to 0 by, for each embedding.
_PENALTY: Final[Mapping[str, float]] = {"minilm": 100.0, "static": 30.0}
BATCH: Final = 8


@dataclass(frozen=True)
class Sizes:
    """How much is measured. prompts: at most so many of each set, None: all. requests: of an order. few: orders of what has no bar.
    embeddings: in order of preference. encodes, decisions, outcomes: see costs.py. processes: at a time."""

    prompts: int | None = None
    labels_mmlu: int = 1_500
    labels_gsm8k: int = 400
    seeds: int = 5
    requests: int = 12_000
    orders: int = 24
    few: int = 8
    warm: int = 200
    topic_labels: int = 1_000
    drafts: int = 4
    replications: int = ope.REPLICATIONS
    wide: int = 60
    logs: tuple[int, ...] = (2_000, 10_000)
    long_log: int = 20_000
    embeddings: tuple[str, ...] = ("minilm", "static")
    decisions: int = 5_000
    outcomes: int = 1_000_000
    encodes: int = 500
    processes: int = 2


QUICK: Final = Sizes(
    prompts=500,
    labels_mmlu=150,
    labels_gsm8k=150,
    seeds=2,
    requests=200,
    orders=2,
    few=1,
    warm=40,
    topic_labels=120,
    drafts=1,
    replications=10,
    wide=2,
    embeddings=("static",),
    decisions=50,
    outcomes=2_000,
    encodes=10,
    processes=1,
)


def within(sizes: Sizes, prompts: int) -> Sizes:
    """The sizes for a matrix of so many prompts: at most a quarter is told of beforehand, or labelled."""
    return replace(sizes, warm=min(sizes.warm, prompts // 4), topic_labels=min(sizes.topic_labels, prompts // 4))


@dataclass(frozen=True)
class Embedded:
    """vectors: by embedding, for each that can be had. missing: embedding -> why it cannot."""

    vectors: Mapping[str, Vectors]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Offline:
    """Trials by figure; missing: figure -> why it has none."""

    trials: Mapping[str, Sequence[Trial]]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Online:
    """orders: by learner. swap: the two plans that change places. accuracies: of the classifiers of topics, by block. embedding: what the
    block `topics` was read from. overlap: by learner. missing: learner -> why it did not run."""

    course: Course
    orders: Mapping[str, Sequence[Order]]
    swap: tuple[int, int]
    accuracies: Mapping[str, float]
    overlap: Mapping[str, int]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Costs:
    """decide: us by policy. encode: us by encoder. memory: by policy. missing: encoder -> why it has none."""

    decide: Mapping[str, float]
    encode: Mapping[str, float]
    memory: Mapping[str, Remembered]
    missing: Mapping[str, str] = field(default_factory=dict)


def embedded(names: Iterable[str], prompts: Sequence[str], library: Library) -> Embedded:
    """Of these prompts, by each embedding that is installed."""
    vectors, missing = {}, {}
    for name in names:
        try:
            vectors[name] = library.embeddings(name, prompts)
        except ValueError as error:
            missing[name] = str(error)
    return Embedded(vectors, missing)


def offline(sizes: Sizes, library: Library, progress: Progress) -> tuple[Offline, Mapping[str, str]]:
    """RouteLLM's pairs; and which embeddings are missing, with the reason."""
    mmlu, missing = _set(data.mmlu(), sizes, library)
    gsm8k, _ = _set(data.gsm8k(), sizes, library)
    trials: dict[str, Sequence[Trial]] = {"mmlu_zero": [routellm.mmlu_zero(mmlu, data.mmlu_pro())]}
    reasons: dict[str, str] = {}
    found = list(mmlu.views.embeddings)
    if found:
        zero = routellm.gsm8k_zero(gsm8k, mmlu, found[0])
        trials["gsm8k_zero"] = [zero]
        trials["mmlu_1500"] = [routellm.mmlu_1500(mmlu, sizes.labels_mmlu, seed) for seed in _told(sizes.seeds, "MMLU", progress)]
        trials["gsm8k_400"] = [routellm.gsm8k_400(gsm8k, zero, sizes.labels_gsm8k, seed) for seed in _told(sizes.seeds, "GSM8K", progress)]
    else:
        reasons = dict.fromkeys(("gsm8k_zero", "mmlu_1500", "gsm8k_400"), "; ".join(missing.values()))
    return Offline(trials, reasons), missing


def _told(seeds: int, figure: str, progress: Progress) -> Iterable[int]:
    for seed in range(seeds):
        yield seed
        progress(f"off line: {figure}, labels {seed + 1} of {seeds}")


def _set(pair: Pair, sizes: Sizes, library: Library) -> tuple[Set, Mapping[str, str]]:
    if sizes.prompts is not None:
        pair = pair.take(_some(len(pair.ids), sizes.prompts))
    of = embedded(sizes.embeddings, pair.prompts, library)
    return Set(pair, heads.views(pair.prompts, of.vectors)), of.missing


def _some(rows: int, most: int) -> npt.NDArray[np.intp]:
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def online(sizes: Sizes, matrix: Matrix, library: Library, progress: Progress) -> Online:
    """The matrix, every outcome of which is known."""
    if sizes.prompts is not None:
        matrix = data.rows_of(matrix, _some(len(matrix.ids), sizes.prompts))
    of = embedded(sizes.embeddings, matrix.prompts, library)
    alone = fresh(matrix.prompts)
    categories = len(set(matrix.categories))
    blocks: dict[str, list[npt.NDArray[np.float32]]] = {name: [vectors] for name, vectors in of.vectors.items() if name == "static"}
    accuracies: dict[str, float] = {}
    missing: dict[str, str] = {}
    overlap = 0
    if 2 <= categories <= 14:
        blocks[CATEGORY] = [one_hot(matrix.categories)]
        for index, (name, vectors) in enumerate(of.vectors.items()):
            made = [inferred(vectors, matrix, alone, sizes.topic_labels, _PENALTY[name], seed) for seed in range(sizes.drafts)]
            block = f"{TOPICS}_{name}" if index else TOPICS
            blocks[block] = [each.probabilities for each in made]
            accuracies[f"{block}, from {name}"] = float(np.mean([each.accuracy for each in made]))
            overlap += _overlap(made) if not index else 0
    course = Course(matrix, blocks, alone)
    swap = _swap(matrix)
    wanted = learners(sizes, swap, tuple(blocks))
    if TOPICS not in blocks:
        missing["category"] = "; ".join(of.missing.values()) or "the prompts have no 2 to 14 categories"
    if CATEGORY not in blocks:
        missing["true_category"] = "the prompts have no 2 to 14 categories"
    orders = all_orders(course, wanted, sizes.processes, progress)
    counted = {learner.name: _told_and_served(course, learner, orders[learner.name]) for learner in wanted}
    if "category" in counted:
        counted["category"] += overlap
    return Online(course, orders, swap, accuracies, counted, missing)


def _overlap(made: Sequence[Inferred]) -> int:
    return sum(each.overlap for each in made)


def _told_and_served(course: Course, learner: Learner, orders: Sequence[Order]) -> int:
    """Prompts that a learner was told of beforehand and then was served."""
    keys = np.array([data.key(prompt) for prompt in course.matrix.prompts])
    return sum(int(np.isin(keys[course.warm(order.seed, learner.warm)], keys[order.rows]).sum()) for order in orders if learner.warm)


def _swap(matrix: Matrix) -> tuple[int, int]:
    """The best plan and another: of MMLU-Pro's, the one that is 0.26 worse, else the one in the middle."""
    ranked = np.argsort(-matrix.rewards.mean(axis=0), kind="stable").tolist()
    other = "Meta-Llama-3_1-8B-Instruct"
    return ranked[0], matrix.plans.index(other) if matrix.plans == data.ONLINE_ARMS else ranked[len(ranked) // 2]


def learners(sizes: Sizes, swap: tuple[int, int], blocks: Sequence[str]) -> list[Learner]:
    """All that can run with these blocks; the first five have a bar on MMLU-Pro."""

    def setting(**more: int | float | tuple[int, int]) -> Setting:
        return Setting(requests=sizes.requests, batch=BATCH, **more)  # type: ignore[arg-type]

    def topical(name: str, block: str, ridge: float, orders: int) -> Learner:
        params = {"nu": 0.15, "nu_warm": 0.15, "features": [block], "ridge": ridge}
        return Learner(name, "thompson", params, block, sizes.warm, plain, orders)

    plain, warm = setting(), {"nu": 0.35}
    most, few = sizes.orders, sizes.few
    found = [
        Learner("cold", "thompson", setting=plain, orders=most),
        Learner("warm", "thompson", warm, warm=sizes.warm, setting=plain, orders=most),
        topical("category", TOPICS, 30.0, most),
        topical("true_category", CATEGORY, 60.0, most),
        Learner("swap", "thompson", setting=setting(swap=swap), orders=most),
        topical("category_static", f"{TOPICS}_static", 30.0, few),
        Learner("delayed", "thompson", setting=setting(delay=100), orders=few),
        Learner("sparse", "thompson", setting=setting(labelled=0.1), orders=few),
        Learner("swap_undetected", "thompson", {"drift": {"threshold": 0.0}}, setting=setting(swap=swap), orders=few),
        Learner("linucb", "linucb", setting=plain, orders=few),
        Learner("linucb_warm", "linucb", warm=sizes.warm, setting=plain, orders=few),
        Learner("neighbors", "neighbors", {"encoder": "static"}, "static", sizes.warm, plain, few),
        Learner("best_single", "best_single", warm=sizes.warm, setting=plain, orders=few),
        Learner("random", "random", setting=plain, orders=few),
    ]
    return [learner for learner in found if learner.block is None or learner.block in blocks]


def logged(sizes: Sizes, matrix: Matrix, progress: Progress) -> Sequence[Cell]:
    """Off-policy intervals on logs that are drawn from the matrix."""
    shape = features.shape(matrix.prompts)
    outcomes = Outcomes(matrix.rewards, features.scale(shape).apply(shape), matrix.categories)
    settings = [Logging(eps, n, adaptive) for n in sizes.logs for eps, adaptive in ((0.1, False), (0.2, False), (0.1, True))]
    jobs = [(setting, sizes.replications) for setting in settings]
    jobs += [(Logging(0.1, sizes.long_log, adaptive), sizes.wide) for adaptive in (True, False)]
    found = []
    for (setting, replications), cells in zip(jobs, _cells(outcomes, jobs, sizes.processes), strict=True):
        found.append(cells)
        progress(f"off-policy intervals: {setting.name}, {replications} logs")
    return list(itertools.chain.from_iterable(found))


def _cells(outcomes: Outcomes, jobs: Sequence[tuple[Logging, int]], processes: int) -> Iterable[Sequence[Cell]]:
    if processes < 2:
        yield from (_covered(outcomes, *job) for job in jobs)
        return
    with workers(processes) as pool:
        results = [pool.submit(_covered, outcomes, *job) for job in jobs]
        yield from (result.result() for result in results)


def _covered(outcomes: Outcomes, logging: Logging, replications: int) -> Sequence[Cell]:
    return ope.coverage(outcomes, logging, ope.targets(outcomes), replications)


def measured_costs(sizes: Sizes, progress: Progress) -> Costs:
    """CPU time and memory of policies and encoders."""
    decide, memory = {}, {}
    for subject in costs.SUBJECTS:
        decide[subject.name] = costs.decide_us(subject, sizes.decisions)
        memory[subject.name] = costs.remembered(subject, sizes.outcomes)
        progress(f"costs: {subject.name}, {decide[subject.name]:.1f} us")
    encode, missing = {}, {}
    prompts = data.gsm8k().prompts
    for name in ("static", "hashed", "shape"):
        try:
            encode[name] = costs.encode_us(name, prompts, sizes.encodes)
        except ValueError as error:
            missing[name] = str(error)
    return Costs(decide, encode, memory, missing)


def cache_folder(given: Path | None) -> Path:
    """Where vectors are kept."""
    return (given or Path(".trilemma") / "cache") / "vectors"
