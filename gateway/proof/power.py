"""`trilemma power`: how many requests it takes to show that a candidate is better, before it is begun.

trilemma power --gain 0.02 --floor 0.1 --plans 4
trilemma power --gain 0.01 0.02 0.05 --share 0.2 --labelled 0.1 --json
trilemma power --gain 0.02 --config FILE --policy candidate                           the variance as it is in the log

one look:  the number of requests is fixed beforehand, and looked at once. any time: the bound that promotions go by, looked at as often as
one likes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from gateway.proof.failing import Failed, run
from gateway.proof.replay import add_log_options, asked
from gateway.proof.tables import number, small, table
from policies.offpolicy.estimators import differences
from policies.offpolicy.power import Traffic, logged_variance, needs, scale, variance
from policies.offpolicy.replay import ReplayError, judged_rows, labelling, sample, target_probabilities


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 the log cannot be used, 2 the configuration or the call is wrong."""
    return run("power", _parser(), argv, _work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilemma power", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--gain", type=float, nargs="+", default=[0.01, 0.02, 0.03, 0.05, 0.1], metavar="X", help="in quality, to be found")
    add("--floor", type=float, default=0.1, metavar="SHARE", help="of all exploration (default: 0.1)")
    add("--plans", type=int, default=2, metavar="N", help="that it is spread over (default: 2)")
    add("--share", type=float, default=None, metavar="SHARE", help="instead: what a canary gives to the candidate")
    add("--success", type=float, default=0.7, metavar="SHARE", help="of answers, expected (default: 0.7)")
    add("--explained", type=float, default=0.0, metavar="SHARE", help="of a label's variance that features explain (default: 0)")
    add("--differs", type=float, default=1.0, metavar="SHARE", help="of requests on which the two choose differently (default: 1)")
    add("--labelled", type=float, default=1.0, metavar="SHARE", help="of requests that get a label (default: 1)")
    add("--power", type=float, default=0.8, metavar="P", help="probability of finding a gain that is there (default: 0.8)")
    add("--alpha", type=float, default=0.05, metavar="P", help="probability of a false alarm (default: 0.05)")
    add_log_options(parser, required=False)
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _work(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    assumed = None
    if args.log is not None and args.config is None:
        raise Failed("--log needs --config, which has the policy", 2)
    try:
        if args.config is None:
            assumed = Traffic(args.floor, args.plans, args.share, args.success, args.explained, args.differs, args.labelled)
            v, most = variance(assumed), scale(assumed)
        else:
            v, most = _logged(args)
        found = needs(v, most, args.gain, args.alpha, args.power)
    except ReplayError as error:
        raise Failed(str(error)) from None
    except ValueError as error:
        raise Failed(str(error), 2) from None
    lines = [(f"{each.gain:g}", f"{each.fixed:,}", f"{each.anytime:,}", number(each.half_width)) for each in found]
    text = f"variance of one request's part: {small(v)}\n" + table(("gain", "one look", "any time", "+- after one look"), lines)
    plain = {"variance": v, "scale": most, "assumed": assumed and asdict(assumed), "needs": [asdict(each) for each in found]}
    return plain, text


def _logged(args: argparse.Namespace) -> tuple[float, float]:
    """V and scale, as the log has them."""
    of_log = asked(args)
    _, rows = judged_rows(of_log.policy, of_log.plans, of_log.logged, not args.all_turns)
    learn = args.learn or of_log.state is None
    target = target_probabilities(of_log.policy, of_log.plans, of_log.logged, rows, of_log.state, learn=learn, baseline=of_log.baseline)
    judged = of_log.logged.at(rows)
    of = sample(judged, target, judged.quality, labelling(judged))
    terms, _ = differences(of)
    if np.isnan(judged.quality).all() or len(terms) < 2:
        raise Failed("the log has no labels to take a variance from")
    return logged_variance(terms), max(2.0, float(np.abs(terms).max()))
