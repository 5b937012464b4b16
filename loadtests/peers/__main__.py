"""Trilemma and other gateways, side by side.

    python -m loadtests.peers install [NAME ...]
    python -m loadtests.peers run [NAME ...] [--json] [--out DIR] [--into docs/benchmarks.md] [--quick]

`install` makes an environment for each peer named, or for all (some 5 GB, by far the most of it OptiLLM's). `run` measures Trilemma and
the peers named, or all, beside nginx; one that is not installed or does not start is a line with its reason. It takes eight minutes, and
wants two CPUs that do nothing else. Ends with 0; 1: `install` left one out; 2: nothing can be measured here.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from gateway import __version__
from gateway.bench.ctools import BenchError, compile_tools
from gateway.bench.report import commit, machine, put
from gateway.bench.servers import terminable
from loadtests.peers import environments
from loadtests.peers.catalogue import PEERS
from loadtests.peers.measure import Row, Sizes, contender, measure, ours
from loadtests.peers.peer import Peer
from loadtests.peers.table import Result, notes_of


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    options = _parser().parse_args(argv)
    chosen = [peer for peer in PEERS if not options.names or peer.name in options.names]
    try:
        with terminable():
            return _install(chosen) if options.what == "install" else _run(chosen, options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _install(chosen: Sequence[Peer]) -> int:
    status = 0
    for peer in chosen:
        begin = time.monotonic()
        try:
            news = environments.install(peer)
        except environments.InstallError as error:
            _progress(f"{peer.name}: {error}")
            status = 1
        else:
            _progress(f"{peer.name}: " + (f"installed in {time.monotonic() - begin:.0f} s" if news else "stands"))
    return status


def _run(chosen: Sequence[Peer], options: argparse.Namespace) -> int:
    begin, before = time.monotonic(), machine()
    sizes = Sizes(blocks=1, shrink=40, afterwork_s=0.05) if options.quick else Sizes()
    reasons = {peer.name: environments.missing(peer) for peer in chosen}
    contenders = [*ours(), *(contender(peer) for peer in chosen if not reasons[peer.name])]
    try:
        tools = compile_tools()
        with tempfile.TemporaryDirectory(prefix="trilemma-peers-") as folder:
            Path(folder).chmod(0o711)  # nginx's worker is another user than root
            rows = measure(contenders, sizes, Path(folder), tools, _progress)
    except BenchError as error:
        _progress(f"peers: {error}")
        return 2
    found = {row.name: row for row in rows}
    absent = {peer.name: Row(peer.name, peer.title, peer.version, peer.remark, reasons[peer.name]) for peer in chosen if reasons[peer.name]}
    result = Result(
        version=__version__,
        commit=commit(),
        data=tools.digests,
        sizes=sizes,
        seconds=round(time.monotonic() - begin, 1),
        rows=[*(row for row in rows if row.name not in reasons), *((found | absent)[peer.name] for peer in chosen)],
        machine=before,
        notes=notes_of(contenders),
    )
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "peers.json").write_bytes(result.json())
        (options.out / "peers.md").write_text(result.markdown())
    if options.into is not None:
        options.into.write_text(put(options.into.read_text(), "peers", result.markdown()))
    sys.stdout.write(result.json().decode() if options.json else result.text())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m loadtests.peers", description="Trilemma and other gateways, side by side.")
    commands = parser.add_subparsers(dest="what", required=True)
    install = commands.add_parser("install", help="make the peers' environments in .trilemma/peers")
    run = commands.add_parser("run", help="measure all that is installed, beside nginx")
    for command in (install, run):
        command.add_argument("names", nargs="*", metavar="NAME", type=_name, help=f"{', '.join(peer.name for peer in PEERS)}; default: all")
    run.add_argument("--json", action="store_true", help="print one JSON object, alone on stdout")
    run.add_argument("--out", type=Path, metavar="DIR", help="write the JSON object and the table there")
    run.add_argument("--into", type=Path, metavar="PAGE.md", help="put the table into that page, between <!-- peers --> marks, too")
    run.add_argument("--quick", action="store_true", help="a smoke run of seconds; its figures mean little")
    return parser


def _name(text: str) -> str:
    if text not in {peer.name for peer in PEERS}:
        raise argparse.ArgumentTypeError(f"there is no peer {text!r}")
    return text


def _progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
