"""`trilemma bench SUITE`: run a suite, print its figures, keep its data."""

from __future__ import annotations

import argparse
import csv
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from gateway.bench import overhead
from gateway.bench.blocks import Block, Progress
from gateway.bench.ctools import BenchError
from gateway.bench.plot import dots
from gateway.bench.report import Report, put
from gateway.bench.servers import terminable


def main(argv: Sequence[str]) -> int:
    """Run one suite. 0: it ran; 1: --assert-bars and a bar was missed; 2: it cannot run here, or was called wrongly; 130: Ctrl-C."""
    options = _parser().parse_args(argv)
    try:
        with terminable():
            report = SUITES[options.suite](options, _progress)
    except BenchError as error:
        _progress(f"trilemma bench {options.suite}: {error}")
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{report.suite}.json").write_bytes(report.json())
    if options.into is not None:
        options.into.write_text(put(options.into.read_text(), report.suite, report.markdown()))
    sys.stdout.write(report.json().decode() if options.json else report.text())
    sys.stdout.flush()
    missed = report.missed()
    if options.assert_bars and missed:
        _progress(f"missed: {', '.join(missed)}")
        return 1
    return 0


def write_plots(report: Report, folder: Path) -> None:
    """The plots of a report on overhead."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, unit in (("requests", "us per request"), ("streams", "us per event")):
        series: dict[str, list[float]] = {}
        for block in _blocks(report):
            target, _, of = block.series.partition("/")
            if of == kind and block.cpu_us is not None and not block.problem:
                value = block.cpu_us_per_event if kind == "streams" else block.cpu_us_per_request
                series.setdefault(target, []).append(value)
        (folder / f"{report.suite}_{kind}.svg").write_text(dots(f"CPU time, {kind}", unit, series))


def write_raw(report: Report, folder: Path) -> None:
    """What the figures are computed from, as CSV: every block, every start."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{report.suite}_blocks.csv").open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(Block.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(block) for block in _blocks(report))
    with (folder / f"{report.suite}_starts.csv").open("w", newline="") as sink:
        writer = csv.writer(sink)
        writer.writerow(["start", "seconds"])
        writer.writerows(enumerate(report.tables["starts_s"]))


def _blocks(report: Report) -> Sequence[Block]:
    blocks: Sequence[Block] = report.tables["blocks"]
    return blocks


def _overhead(options: argparse.Namespace, progress: Progress) -> Report:
    sizes = overhead.QUICK if options.quick else overhead.Sizes()
    if options.blocks is not None:
        sizes = replace(sizes, blocks=options.blocks)
    report = overhead.run(sizes, progress, options.command)
    if options.out is not None:
        write_plots(report, options.out)
    if options.raw is not None:
        write_raw(report, options.raw)
    return report


def _routing(options: argparse.Namespace, progress: Progress) -> Report:
    from gateway.bench import routing  # numpy is loaded for this suite alone

    return routing.run(options.quick, progress, routing.Folders(options.cache, options.matrix, options.costs, options.raw, options.out))


def _decoding(options: argparse.Namespace, progress: Progress) -> Report:
    from gateway.bench import decoding, engines  # numpy is loaded for this suite alone

    if options.engines or options.base_url is not None:
        return engines.run(engines.wanted(options), progress)
    return decoding.run(options.quick, progress, decoding.Folders(options.samples, options.raw, options.out))


SUITES: Mapping[str, Callable[[argparse.Namespace, Progress], Report]] = {
    "decoding": _decoding,
    "overhead": _overhead,
    "routing": _routing,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilemma bench", description="Run a benchmark suite.")
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--json", action="store_true", help="print one JSON object, alone on stdout")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the JSON object and plots there")
    parser.add_argument("--raw", type=Path, metavar="DIR", help="write what the figures are computed from there (CSV)")
    parser.add_argument("--into", type=Path, metavar="PAGE.md", help="put the table into that page, between <!-- SUITE --> marks, too")
    parser.add_argument("--quick", action="store_true", help="a smoke run of seconds; its figures mean little")
    parser.add_argument("--assert-bars", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--matrix", type=Path, metavar="FILE", help="routing: your outcomes, CSV: id,prompt,category,<a column per model>")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="routing: what they cost, USD: the same ids and models")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="routing: where embeddings are kept (default: .trilemma/cache)")
    parser.add_argument("--samples", type=Path, metavar="FILE", help="decoding: your samples: set,question,sample,answer,correct,tokens")
    parser.add_argument("--engines", action="store_true", help="decoding: ask the two packaged models instead, which takes minutes")
    parser.add_argument("--base-url", metavar="URL", help="decoding: ask any OpenAI-compatible endpoint instead")
    parser.add_argument("--model", metavar="NAME", help="decoding: of that endpoint (default: the first that it lists)")
    parser.add_argument("--api-key-env", metavar="NAME", help="decoding: environment variable that holds its key")
    parser.add_argument("--items", type=_positive, metavar="N", help="decoding: questions of each family that engines are asked")
    parser.add_argument("--record", type=Path, metavar="FILE", help="decoding: write samples of the engines there (.jsonl.gz) instead")
    parser.add_argument("--blocks", type=_positive, metavar="N", help="blocks per series, the least one counts")
    parser.add_argument("--command", metavar="CMD", help="measure another server instead; {config}, {port}, {backend} are filled in")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
