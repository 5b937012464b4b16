"""How much of the prompts an engine's prefix cache serves, by the rule that chooses the replica: a simulation on a recorded trace.

    python -m loadtests.affinity [--json | --markdown] [--replicas 1 4 8] [--blocks 1000 10000] [--seed 0] [--calls N]

Each replica has an LRU cache of prompt blocks (512 tokens), prefills one prompt after another, and decodes all calls at once:

    wait + uncached tokens / PREFILL_TOKENS_PER_S + output tokens * DECODE_S_PER_TOKEN

Calls come as in the trace, but for the time between them, which is stretched so that each replica gets the work that it gets of eight.
Rules: `affinity` (gateway.pool: prefixes under the load ceiling), `random`, `least_loaded` (fewest calls in flight), `hash` (of the first
block), `hash_2` (of the first two blocks: in this trace all prompts begin with the same block).

Figures: `hit_rate`, the share of all prompt blocks that were cached where the call went; `calls_spread` and `load_spread`, the largest
replica over the mean, of calls given in the whole run and of calls in flight (at each arrival, averaged); `wait_s` and `ttft_p95_s`, the
simulated wait before the prefill, on average, and the 95th percentile of wait and prefill together.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gateway.load.placement import Affinity, Replica, Rule, at_random, hashed, least_loaded, spread
from gateway.load.traces import BLOCK_TOKENS, Row, digest, read_trace
from gateway.mock.prefix_cache import PrefixCache

TRACE = "mooncake_conversation"
PREFILL_TOKENS_PER_S = 10_000
DECODE_S_PER_TOKEN = 0.025
# The gateway names at most 64 blocks of 1,024 bytes; the trace's blocks are of some 2,048.
MOST_NAMES = 32
STRETCHED_TO = 8
_RULES: Mapping[str, str] = {
    "affinity": "affinity",
    "random": "random",
    "least_loaded": "least loaded",
    "hash": "hash",
    "hash_2": "hash of two",
}


class Figures(msgspec.Struct, frozen=True):
    """What one rule did with one pool; see the module."""

    replicas: int
    cache_blocks: int
    rule: str
    hit_rate: float
    calls_spread: float
    load_spread: float
    wait_s: float
    ttft_p95_s: float


@dataclass(slots=True)
class Engine(Replica):
    """A replica that prefills one prompt after another. `free_at`: when its prefills of now are done."""

    free_at: float = 0.0

    def serve(self, now: float, row: Row) -> tuple[int, float, float]:
        """Blocks that were cached, seconds of waiting, seconds to the first token."""
        hits = self.cache.use(row.blocks)
        begin = max(now, self.free_at)
        self.free_at = begin + max(0, row.prompt_tokens - hits * BLOCK_TOKENS) / PREFILL_TOKENS_PER_S
        self.hold(self.free_at + row.output_tokens * DECODE_S_PER_TOKEN)
        return hits, begin - now, self.free_at - now


def rules(seed: int) -> Mapping[str, Rule]:
    """All that are compared, each with fresh state."""
    dice = random.Random(seed)  # noqa: S311 - repeatable figures are the point
    return {
        "affinity": Affinity(dice, most=MOST_NAMES),
        "hash": hashed(1),
        "hash_2": hashed(2),
        "least_loaded": least_loaded(dice),
        "random": at_random(dice),
    }


def simulate(rows: Iterable[Row], replicas: int, cache_blocks: int, name: str, rule: Rule) -> Figures:
    """Sends all rows through a pool of that many replicas."""
    pool = [Engine(f"replica-{number}", PrefixCache(cache_blocks)) for number in range(replicas)]
    stretch = STRETCHED_TO / replicas
    hits = blocks = 0
    waits, firsts, spreads = [], [], []
    for row in rows:
        now = row.at * stretch
        for replica in pool:
            replica.settle(now)
        hit, wait, first = rule(row.blocks, pool).serve(now, row)
        hits += hit
        blocks += len(row.blocks)
        waits.append(wait)
        firsts.append(first)
        spreads.append(spread([replica.in_flight for replica in pool]) or 1.0)
    return Figures(
        replicas,
        cache_blocks,
        name,
        hit_rate=hits / blocks,
        calls_spread=spread([replica.given for replica in pool]) or 1.0,
        load_spread=sum(spreads) / len(spreads),
        wait_s=sum(waits) / len(waits),
        ttft_p95_s=sorted(firsts)[int(0.95 * len(firsts))],
    )


def table(figures: Iterable[Figures]) -> str:
    """For people."""
    lines = [f"{'replicas':>8} {'cache':>7} {'rule':13} {'hit rate':>8} {'calls':>6} {'load':>6} {'wait s':>9} {'TTFT p95 s':>10}"]
    lines += [
        f"{one.replicas:8} {one.cache_blocks:7} {one.rule:13} {one.hit_rate:8.4f} {one.calls_spread:6.2f} {one.load_spread:6.2f} "
        f"{one.wait_s:9.2f} {one.ttft_p95_s:10.2f}"
        for one in figures
    ]
    return "\n".join([*lines, "calls, load: largest replica / mean"]) + "\n"


def markdown(figures: Sequence[Figures]) -> str:
    """The table of docs/load.md: a column for each rule."""
    pools: dict[tuple[int, int], dict[str, Figures]] = {}
    for one in figures:
        pools.setdefault((one.replicas, one.cache_blocks), {})[one.rule] = one
    lines = [f"| replicas | cache of each, tokens | | {' | '.join(_RULES.values())} |", f"|{'---|' * (3 + len(_RULES))}"]
    for (replicas, blocks), found in pools.items():
        ordered = [found[rule] for rule in _RULES]
        rows = {"prompt blocks found": [f"{100 * one.hit_rate:.1f} %" for one in ordered]}
        if replicas > 1:
            rows["calls in flight, largest / mean"] = [f"{one.load_spread:.2f}" for one in ordered]
            rows["wait for the prefill, mean"] = [f"{one.wait_s:,.{0 if one.wait_s > 100 else 1}f} s" for one in ordered]
        for number, (name, cells) in enumerate(rows.items()):
            pool = f"{replicas} | {blocks * BLOCK_TOKENS:,}" if number == 0 else " | "
            lines.append(f"| {pool} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the figures, as a table or one JSON object."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.affinity", description="Hit rates of prefix caches, by rule of choice.")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 4, 8], metavar="N", help="sizes of the pool")
    parser.add_argument("--blocks", type=int, nargs="+", default=[1_000, 10_000], metavar="N", help="blocks that a replica's cache holds")
    parser.add_argument("--calls", type=int, metavar="N", help="only the first calls of the trace")
    parser.add_argument("--seed", type=int, default=0)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--markdown", action="store_true", help="the table of docs/load.md")
    args = parser.parse_args(argv)
    rows = read_trace(TRACE)[: args.calls]
    figures = [
        simulate(rows, replicas, blocks, name, rule)
        for replicas in args.replicas
        for blocks in args.blocks
        for name, rule in rules(args.seed).items()
    ]
    if args.json:
        report = {"trace": TRACE, "sha256": digest(TRACE), "calls": len(rows), "seed": args.seed, "figures": figures}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
    else:
        sys.stdout.write(markdown(figures) if args.markdown else table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
