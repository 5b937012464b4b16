"""`trilemma explain`: a decision made again from what was logged of it, to the bit, and why it came out as it did.

trilemma explain 0192c6f0a1b27c3d8e4f5061728394a5-0123456789ab --config FILE
trilemma explain ID --config FILE --json

Nothing is called or changed. The database is read, and what the policy had learnt then is restored.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.access.link import Link, Session
from gateway.config.load import Loaded, load, parse
from gateway.config.problems import ConfigError
from gateway.learning import rebuilding, snapshots
from gateway.learning.explaining import CannotBe, Explanation, decided_of, explained
from gateway.learning.scopes import scope_of
from gateway.proof.failing import Failed
from gateway.proof.tables import number, small, table
from gateway.serving.ids import FORM
from gateway.serving.state import VirtualModel, build
from gateway.store import history
from gateway.store.urls import Location, located
from gateway.store.writer import StoreError
from policies.policy import Policy

_WITHIN_S: Final = 60.0

Names = Mapping[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 it came out the same, 1 it did not or cannot be made again (it says why), 2 the configuration or the call is wrong."""
    args = _parser().parse_args(argv)
    try:
        found, same = _work(args)
    except Failed as failed:
        if args.json:
            print(json.dumps({"ok": False, "error": str(failed)}))
        else:
            print(f"trilemma explain: {failed}", file=sys.stderr)
        return failed.status
    exact = not found.differences
    print(json.dumps({"ok": exact, **plain(found, same)}) if args.json else text(found, same), end="\n" if args.json else "")
    return 0 if exact else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilemma explain", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("id", metavar="ID", help="of the decision, as an answer's `x-trilemma-decision-id` has it")
    parser.add_argument(
        "--config",
        type=Path,
        default=Path("trilemma.yaml"),
        metavar="FILE",
        help="the configuration, which names the database (default: trilemma.yaml)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _work(args: argparse.Namespace) -> tuple[Explanation, bool]:
    if FORM.match(args.id) is None:
        raise Failed(f"`{args.id}` is no decision's id", 2)
    try:
        loaded = load(args.config)
        location = located(loaded.config.storage.url)
        names = _names(loaded)
    except (ConfigError, ValueError) as error:
        raise Failed(str(error), 2) from None
    if location is None:
        raise Failed("there is no database: `storage.url` is empty", 2)
    try:
        return asyncio.run(_explained(location, args, names, loaded.hash))
    except StoreError as error:
        raise Failed(f"the database cannot be read: {error}") from None
    except CannotBe as error:
        raise Failed(f"it cannot be made again: {error}") from None


def _names(loaded: Loaded) -> Names:
    """What a request can name. Raises ValueError."""
    return build(loaded.config, loaded.hash, lambda _: "http://127.0.0.1:0").names


async def _explained(location: Location, args: argparse.Namespace, names: Names, hash_: str) -> tuple[Explanation, bool]:
    """What is to be told, and whether the configuration is that of the decision. names, hash_: of the one that was named."""
    link = Link(location, _WITHIN_S, "trilemma-explain")
    try:
        row = await link.read(partial(history.receipt, id_=args.id))
        if row is None:
            raise CannotBe("there is no such decision; its request has not ended, or it was erased or is older than what is kept")
        decided_of(row)
        same = row["config_hash"] == hash_
        try:
            return await _again(link, row, names), same
        except CannotBe as error:
            if same:
                raise
            texts = await link.read(partial(history.config_texts, hashes=(row["config_hash"],)))
            then = _names_then(texts, row["config_hash"], args.config)
            if then is None:
                raise CannotBe(f"{error}; it was made under another configuration than this one, which is not kept") from None
        return await _again(link, row, then), True
    finally:
        await link.close()


def _names_then(texts: Mapping[str, str], hash_: str, file: Path) -> Names | None:
    """As _names, of the configuration with this hash; None: its text is not there, or means something else by now. file: as it is now."""
    if hash_ not in texts:
        return None
    try:
        loaded = parse(texts[hash_], os.environ, folder=file.absolute().parent)
        return _names(loaded) if loaded.hash == hash_ else None
    except (ConfigError, ValueError):
        return None


async def _again(link: Link, row: Mapping[str, Any], names: Names) -> Explanation:
    """Raises CannotBe, StoreError."""
    route = names.get(row["requested_model"])
    if not isinstance(route, VirtualModel):
        raise CannotBe(f"there is no virtual model `{row['requested_model']}`")
    policy = route.policies.get(row["policy"])
    if policy is None:
        raise CannotBe(f"no policy `{row['policy']}` fits `{route.name}`")
    version = row["snapshot"] or 0
    try:
        state = await link.read(partial(_state, route=route, policy=policy, version=version))
    except (LookupError, ValueError) as error:
        raise CannotBe(f"version {version} of what it had learnt: {error}") from None
    return explained(row, route, policy, state)


def _state(session: Session, route: VirtualModel, policy: Policy, version: int) -> Any:
    """What the policy had learnt at that version. Raises LookupError, ValueError."""
    scope = scope_of(route, policy)
    return snapshots.nothing(scope).state if version == 0 else rebuilding.recomputed(session, scope, version).state


def plain(found: Explanation, same: bool) -> dict[str, Any]:
    """As JSON. same: the configuration is that of the decision."""
    decided = found.decided
    return {
        "id": found.id,
        "model": found.model,
        "policy": found.policy,
        "snapshot": found.snapshot,
        "exact": not found.differences,
        "same_configuration": same,
        "differences": [msgspec.structs.asdict(each) for each in found.differences],
        "chosen": found.chosen,
        "propensity": found.propensity,
        "explored": found.explored,
        "draw": found.draw,
        "runner_up_price": found.runner_up_price,
        "fallback": decided.fallback,
        "prices": {"cost": decided.prices.cost, "latency": decided.prices.latency, **decided.prices.parts},
        "candidates": [
            {
                "plan": each.plan,
                "probability": each.probability,
                "quality": each.quality,
                "quality_low": each.low,
                "quality_high": each.high,
                "score": each.score,
                "cost": each.cost,
                "latency_s": each.latency,
                "terms": dict(found.terms.get(each.plan, {})),
            }
            for each in decided.candidates
        ],
        "excluded": [{"plan": each.plan, "reason": each.reason} for each in decided.excluded],
        "standing": None if decided.standing is None else msgspec.structs.asdict(decided.standing),
        "tool_loop": decided.tool_loop,
        "explore": decided.explore,
        "shadow": dict(decided.shadow),
    }


def text(found: Explanation, same: bool) -> str:
    """For people."""
    decided = found.decided
    drawn = f"{found.chosen} (probability {found.propensity:.6g}{', explored' if found.explored else ''})"
    learnt = f"version {found.snapshot}" if found.snapshot else "nothing"
    out = [f"decision {found.id}\n{found.model} by {found.policy}, which had learnt {learnt}: {drawn}\n\n"]
    header = ("plan", "quality", "low", "high", "cost, USD", "latency, s", "score", "probability")
    out.append(table(header, [_line(each) for each in decided.candidates]))
    out += [f"{each.plan}: excluded, {each.reason}\n" for each in decided.excluded]
    out.append(f"\nprices: {small(decided.prices.cost)} of quality for a USD, {small(decided.prices.latency)} for a second\n")
    out += [f"  {name}: {small(price)}\n" for name, price in decided.prices.parts.items()]
    if found.runner_up_price is not None:
        out.append(f"the runner-up wins at {small(found.runner_up_price)} for a USD\n")
    if decided.standing is not None:
        out.append(f"the conversation stood with {decided.standing.plan}, idle for {decided.standing.idle_s:.1f} s\n")
    for plan, terms in found.terms.items():
        out.append(f"  {plan}: {', '.join(f'{name} {value:+.4g}' for name, value in terms.items())}\n")
    if decided.tool_loop:
        out.append("a tool's answer was awaited: nothing was tried out\n")
    elif not decided.explore:
        out.append("nothing was tried out on it\n")
    out += [f"{name} would have chosen {plan or 'nothing: it failed'}\n" for name, plan in decided.shadow.items()]
    if decided.fallback is not None:
        out.append(f"no policy decided ({decided.fallback}): the baseline served\n")
    elif found.draw is not None:
        out.append(f"draw: u = {found.draw:.6f}\n")
    if not same:
        out.append("the configuration is another one than that of the decision\n")
    if not found.differences:
        out.append("made again: the same to the bit\n")
    out += [f"made again: {each.where} is {each.again}, was {each.logged}\n" for each in found.differences]
    return "".join(out)


def _line(each: Any) -> Sequence[str]:
    numbers = (number(each.quality), number(each.low), number(each.high), small(each.cost), small(each.latency), number(each.score))
    return (each.plan, *numbers, number(each.probability))
