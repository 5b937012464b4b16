"""`trilemma simulate`: a routing policy on an outcome matrix, as if its prompts came one after the other.

trilemma simulate --matrix FILE --type thompson --params '{"features": []}' --orders 5
trilemma simulate --matrix FILE --costs FILE --config FILE --policy NAME --price-cost 20 --delay 100 --labelled 0.1 --json

The matrix is a CSV (also .gz): id,prompt,category, and a column of outcomes (0 to 1; empty: not known) for each model, which is a plan
here."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gateway.config.plans import policy_specs
from gateway.engines.embeddings import Unanswered
from gateway.proof.failing import Failed, finite, run
from gateway.proof.policies import built, loaded
from gateway.proof.tables import number, small, table
from policies.offpolicy.matrix import Matrix, MatrixError, read_matrix
from policies.offpolicy.simulate import Run, Setting, category_means, matrix_blocks, regrets, simulate
from policies.policy import Policy
from policies.registry import Spec
from policies.values.plan import Plan
from policies.values.situation import Prices


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the matrix cannot be used, 2 the configuration or the call is wrong."""
    return run("simulate", _parser(), argv, _work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilemma simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--matrix", type=Path, required=True, metavar="FILE", help="the outcomes")
    add("--costs", type=Path, default=None, metavar="FILE", help="a CSV: model,cost,latency; or id, and a column of costs for each model")
    add("--config", type=Path, default=None, metavar="FILE", help="a configuration that has the policy")
    add("--policy", default=None, metavar="NAME", help="its name there")
    add("--type", default=None, metavar="TYPE", help="instead: a type of policy")
    add("--params", type=json.loads, default={}, metavar="JSON", help="its parameters")
    add("--wrappers", type=json.loads, default=[], metavar="JSON", help="what is put around it, the innermost first")
    add("--floor", type=float, default=0.0, metavar="SHARE", help="its exploration floor (default: 0)")
    add("--baseline", default=None, metavar="PLAN", help="the guarantee (default: the first column)")
    add("--orders", type=int, default=5, metavar="N", help="runs, each over the prompts in another order (default: 5)")
    add("--seed", type=int, default=0, metavar="N", help="of the first order (default: 0)")
    add("--requests", type=int, default=None, metavar="N", help="at most so many in each")
    add("--delay", type=int, default=0, metavar="N", help="requests until an outcome is told (default: 0)")
    add("--labelled", type=float, default=1.0, metavar="SHARE", help="of the requests whose outcome is ever told (default: 1)")
    add("--batch", type=int, default=10, metavar="N", help="requests between what is learnt (default: 10)")
    add("--warm", type=int, default=0, metavar="N", help="prompts of which all outcomes are told first; they are not served")
    add("--swap", default=None, metavar="A,B", help="two models exchange their outcomes half-way")
    add("--price-cost", type=float, default=0.0, metavar="X", help="quality given up for one USD")
    add("--price-latency", type=float, default=0.0, metavar="X", help="quality given up for one second")
    add("--raw", type=Path, default=None, metavar="FILE", help="a CSV of every request: order,step,id,arm,propensity,reward")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _work(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    try:
        matrix = read_matrix(args.matrix, args.costs)
    except MatrixError as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise Failed(f"{error.filename} cannot be read: {error.strerror}", 2) from None
    _check(args, matrix)
    plans = tuple(Plan(name, name) for name in matrix.plans)
    policy = _policy(args, plans)
    try:
        blocks = matrix_blocks(matrix, policy.algorithm.encoders)
    except (Unanswered, TimeoutError) as error:
        raise Failed(str(error)) from None
    swap = None if args.swap is None else _pair(args.swap, matrix.plans)
    prices = Prices(args.price_cost, args.price_latency)
    runs = []
    for order in range(args.orders):
        setting = Setting(
            args.seed + order, args.requests, args.delay, args.labelled, args.batch, args.warm, swap, prices, baseline=args.baseline
        )
        runs.append(simulate(policy, matrix.rewards, plans, setting, blocks, matrix.costs, matrix.latencies))
    if args.raw is not None:
        _write_raw(args.raw, matrix, runs)
    figures = summary(matrix, runs, swap)
    return {"policy": policy.name, "orders": args.orders, "seed": args.seed, **figures}, _text(policy.name, figures)


def _check(args: argparse.Namespace, matrix: Matrix) -> None:
    if not (0.0 < args.labelled <= 1.0 and 0.0 <= args.floor < 1.0):
        raise Failed("--labelled must be in (0, 1] and --floor in [0, 1)", 2)
    if args.orders < 1 or args.batch < 1 or args.delay < 0 or args.warm < 0 or (args.requests is not None and args.requests < 1):
        raise Failed("--orders, --batch and --requests must be at least 1, --delay and --warm at least 0", 2)
    if args.warm >= len(matrix.ids):
        raise Failed(f"--warm {args.warm} leaves no prompt of {len(matrix.ids)} to be served", 2)
    if (args.type is None) == (args.policy is None) or (args.policy is not None and args.config is None):
        raise Failed("name a policy either by --type, or by --config and --policy", 2)


def _policy(args: argparse.Namespace, plans: Sequence[Plan]) -> Policy:
    baseline = args.baseline or plans[0].name
    if baseline not in [plan.name for plan in plans]:
        raise Failed(f"--baseline: the matrix has no column `{baseline}`", 2)
    if args.policy is not None:
        config = loaded(args.config)
        return built(args.policy, policy_specs(config), plans, baseline, config.embeddings)
    if not isinstance(args.params, dict) or not isinstance(args.wrappers, list):
        raise Failed("--params must be a JSON object, --wrappers an array of objects", 2)
    return built(args.type, {args.type: Spec(args.type, args.params, args.floor, 0, args.wrappers)}, plans, baseline)


def _pair(text: str, plans: Sequence[str]) -> tuple[int, int]:
    names = text.split(",")
    if len(names) != 2 or not set(names) <= set(plans) or names[0] == names[1]:
        raise Failed(f"--swap must name two columns of the matrix, such as {','.join(plans[:2])}", 2)
    return plans.index(names[0]), plans.index(names[1])


def summary(matrix: Matrix, runs: Sequence[Run], swap: tuple[int, int] | None) -> dict[str, Any]:
    """What came of the runs, and what could have: the best single plan and the best of each category (of the matrix as it is), and the best
    plan of every prompt, which nobody knows beforehand."""
    rewards = matrix.rewards
    of_run = np.array([float(run.rewards.mean()) for run in runs])
    means = category_means(rewards, matrix.categories)
    known = ~np.isnan(rewards).all(axis=1)
    per_plan = _column_means(rewards)
    spread = np.array([np.bincount(run.arms, minlength=len(matrix.plans)) / len(run.arms) for run in runs]).mean(axis=0)
    best = int(np.nanargmax(per_plan))
    return {
        "requests": len(runs[0].rows),
        "reward": {"mean": float(of_run.mean()), "lowest": float(of_run.min()), "highest": float(of_run.max())},
        "cost": _spent(matrix.costs, runs),
        "latency": _spent(matrix.latencies, runs),
        "lost_after_swap": _lost(runs, means, swap),
        "best_fixed": {"plan": matrix.plans[best], "reward": float(per_plan[best])},
        "best_per_category": float(np.nanmax(means[known], axis=1).mean()),
        "oracle": float(np.nanmax(rewards[known], axis=1).mean()),
        "plans": {
            name: {"share": float(spread[i]), "reward": finite(float(per_plan[i])), "cost": float(matrix.costs[:, i].mean())}
            for i, name in enumerate(matrix.plans)
        },
    }


def _column_means(rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    known = ~np.isnan(rewards)
    with np.errstate(invalid="ignore"):
        means: npt.NDArray[np.float64] = np.where(known, rewards, 0.0).sum(axis=0) / known.sum(axis=0)
    return means


def _spent(values: npt.NDArray[np.float64], runs: Sequence[Run]) -> float:
    return float(np.mean([values[run.rows, run.arms].mean() for run in runs]))


def _lost(runs: Sequence[Run], means: npt.NDArray[np.float64], swap: tuple[int, int] | None) -> float | None:
    if swap is None:
        return None
    return float(np.mean([regrets(run, means, swap)[len(run.rows) // 2 :].sum() for run in runs]))


def _text(name: str, figures: dict[str, Any]) -> str:
    reward = figures["reward"]
    lines = [
        (f"policy {name}", number(reward["mean"])),
        ("  lowest order", number(reward["lowest"])),
        ("  highest order", number(reward["highest"])),
        (f"best fixed: {figures['best_fixed']['plan']}", number(figures["best_fixed"]["reward"])),
        ("best of each category", number(figures["best_per_category"])),
        ("best of each prompt", number(figures["oracle"])),
    ]
    if figures["lost_after_swap"] is not None:
        lines.append(("reward lost after the swap", number(figures["lost_after_swap"], 1)))
    plans = [(plan, number(each["share"], 3), number(each["reward"]), small(each["cost"])) for plan, each in figures["plans"].items()]
    spent = f"\ncost {small(figures['cost'])} USD, latency {small(figures['latency'])} s a request\n"
    return table((f"{figures['requests']:,} requests", "reward"), lines) + spent + "\n" + table(("plan", "share", "reward", "cost"), plans)


def _write_raw(file: Path, matrix: Matrix, runs: Sequence[Run]) -> None:
    try:
        with file.open("w", newline="") as sink:
            writer = csv.writer(sink)
            writer.writerow(("order", "step", "id", "arm", "propensity", "reward"))
            for order, each in enumerate(runs):
                steps = zip(each.rows.tolist(), each.arms.tolist(), each.propensities.tolist(), each.rewards.tolist(), strict=True)
                for step, (row, arm, propensity, reward) in enumerate(steps):
                    writer.writerow((order, step, matrix.ids[row], matrix.plans[arm], propensity, reward))
    except OSError as error:
        raise Failed(f"{file} cannot be written: {error.strerror}") from None
