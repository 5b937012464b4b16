"""`trilemma replay`: what a policy would have been worth on logged traffic, with intervals.

trilemma replay --config FILE --policy candidate
trilemma replay --config FILE --model auto --policy candidate --log DIR --state snapshot.npz --json

Without --state the policy begins with nothing and learns through the log, as it would have. With it, it stays as it is (--learn: it goes on
learning); the snapshot must not have learnt from the same rows.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.proof.failing import Failed, run
from gateway.proof.policies import Subject, configured
from gateway.proof.record import MOST, read_database, read_folder, rows_of
from gateway.proof.tables import number, small, table
from gateway.store.writer import StoreError
from policies.offpolicy.estimators import Estimate
from policies.offpolicy.log import LogError, Logged, logged, read_log
from policies.offpolicy.replay import Component, ReplayError, Report, replay
from policies.policy import Policy
from policies.states import restored, unpacked
from policies.values.plan import Plan

_NAMES: Final = MappingProxyType({"dm": "direct", "ips": "IPS", "snips": "SNIPS", "dr": "DR", "switch": "SWITCH", "gain": "gain"})


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done (an estimate may be refused; it says why), 1 the log cannot be used, 2 the configuration or the call is wrong."""
    return run("replay", _parser(), argv, _work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilemma replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_log_options(parser)
    parser.add_argument("--clip", type=float, default=None, metavar="M", help="IPS: weights are cut to this (default: not)")
    parser.add_argument(
        "--switch", type=float, default=None, metavar="M", help="SWITCH: above this weight the reward model alone (default: by the data)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def add_log_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """What names a log, and the policy that is put to it."""
    add = parser.add_argument
    add("--config", type=Path, required=required, metavar="FILE", help="the configuration that has the policy, and names the database")
    add("--log", type=Path, default=None, metavar="PATH", help="instead of the database: a folder of `trilemma export`, or lines of JSON")
    add("--days", type=float, default=30.0, metavar="N", help="of the database: only what was decided since (default: 30)")
    add("--last", type=int, default=MOST, metavar="N", help=f"of the database: only so many decisions, the newest (default: {MOST:,})")
    add("--model", default=None, metavar="NAME", help="the virtual model (default: the only one)")
    add("--policy", default=None, metavar="NAME", help="the policy to be put to it (default: the one that serves the model)")
    add("--state", type=Path, default=None, metavar="FILE", help="a snapshot of what the policy has learnt")
    add("--learn", action="store_true", help="it learns through the log; without --state it always does")
    add("--all-turns", action="store_true", help="later turns of sessions, too: their contexts are the doing of the log's policy")


class Asked(NamedTuple):
    """What a log is to be asked. state: None: none was named. left_out: rows that are not in the log, by reason."""

    policy: Policy
    plans: tuple[Plan, ...]
    baseline: str
    logged: Logged
    state: Any
    left_out: dict[str, int]


def asked(args: argparse.Namespace) -> Asked:
    """Raises Failed."""
    subject = configured(args.config, args.model, args.policy)
    try:
        logged_, left_out = _logged(args, subject)
    except LogError as error:
        raise Failed(str(error)) from None
    except StoreError as error:
        raise Failed(f"the database cannot be read: {error}") from None
    except OSError as error:
        raise Failed(f"{error.filename} cannot be read: {error.strerror}", 2) from None
    if args.state is None:
        return Asked(subject.policy, subject.plans, subject.baseline, logged_, None, left_out)
    try:
        state = restored(subject.policy.algorithm.empty(), unpacked(args.state.read_bytes()))
    except ValueError as error:
        raise Failed(f"{args.state}: {error}") from None
    except OSError as error:
        raise Failed(f"{args.state} cannot be read: {error.strerror}", 2) from None
    return Asked(subject.policy, subject.plans, subject.baseline, logged_, state, left_out)


def _logged(args: argparse.Namespace, subject: Subject) -> tuple[Logged, dict[str, int]]:
    names = [plan.name for plan in subject.plans]
    if args.log is not None and not args.log.is_dir():
        return read_log(args.log, names), {}
    if args.log is not None:
        record = read_folder(args.log, subject.believed)
    elif subject.location is None:
        raise Failed("there is no database: `storage.url` is empty; name a log with --log", 2)
    else:
        record = asyncio.run(read_database(subject.location, subject.model, args.days, subject.believed, args.last))
    reading = rows_of(record, subject.model, subject.by_unit)
    return logged(reading.rows, names), reading.left_out


def _work(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    of = asked(args)
    try:
        report = replay(
            of.policy,
            of.plans,
            of.logged,
            of.state,
            learn=args.learn or of.state is None,
            baseline=of.baseline,
            first_only=not args.all_turns,
            clip=args.clip,
            switch=args.switch,
        )
    except ReplayError as error:
        raise Failed(str(error)) from None
    report = dataclasses.replace(report, rows=report.rows + sum(of.left_out.values()), left_out=of.left_out | report.left_out)
    return dataclasses.asdict(report), text(report)


def text(report: Report) -> str:
    """A report for people."""
    out = [f"policy {report.policy}: {report.evaluated:,} of {report.rows:,} rows\n"]
    out += [f"left out: {count:,} {reason}\n" for reason, count in report.left_out.items()]
    out += [f"plan {name} was never a candidate: these figures know nothing of it\n" for name in report.absent]
    for name, component in (("quality", report.quality), ("cost, USD", report.cost), ("latency, s", report.latency)):
        out.append("\n" + table((name, "value", "low", "high", "ESS", "labels"), _lines(component)))
        out += [f"  {reason}\n" for reason in _reasons(component)]
    shares = [(plan, number(would, 3), number(did, 3)) for plan, (would, did) in report.shares.items()]
    out.append("\n" + table(("share of requests", "policy", "log"), shares))
    return "".join(out)


def _lines(component: Component) -> list[Sequence[str]]:
    named = [(_NAMES[each.method], each) for each in component.target]
    named += [("the log's policy", component.logged), ("gain", component.gain)]
    return [(name, small(e.value), small(e.low), small(e.high), f"{e.ess:.0f}", f"{e.labels:,}") for name, e in named]


def _reasons(component: Component) -> list[str]:
    every: list[Estimate] = [*component.target, component.logged, component.gain]
    return list(dict.fromkeys(each.refused for each in every if each.refused is not None))
