"""`trilemma load SCENARIO.yaml`: run a scenario, print what came of it, say whether what is expected holds."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from gateway.bench.ctools import BenchError
from gateway.load.report import Report, report, requests_csv, unknown_figures
from gateway.load.run import Observed, run
from gateway.load.scenario import Scenario, ScenarioError, read_scenario
from gateway.load.traces import TraceMissing


def main(argv: Sequence[str] | None = None) -> int:
    """0: all that is expected holds; 1: not all; 2: it cannot be run; 128 + the signal's number: ended by SIGINT or SIGTERM."""
    options = _parser().parse_args(argv)
    try:
        scenario = read_scenario(options.scenario)
        unknown = unknown_figures(scenario)
        if unknown:
            raise ScenarioError(f"{options.scenario}: expect: there are no such figures: {', '.join(unknown)}")
        found, seen = _run(scenario, options.out)
    except (ScenarioError, TraceMissing, BenchError) as error:
        _progress(f"trilemma load: {error}")
        return 2
    except _Ended as ended:
        return 128 + ended.number
    if options.out is not None:
        (options.out / f"{scenario.name}.json").write_bytes(found.json())
        (options.out / f"{scenario.name}_requests.csv").write_text(requests_csv(seen.records))
    sys.stdout.write(found.json().decode() if options.json else found.text())
    sys.stdout.flush()
    missed = [f"{one.figure} {one.bound()}" for one in found.expectations if not one.kept]
    if missed:
        _progress(f"missed: {', '.join(missed)}")
    return 0 if found.passed else 1


def _run(scenario: Scenario, out: Path | None) -> tuple[Report, Observed]:
    """Logs and the generated configuration are kept in DIR/NAME_logs when there is a DIR."""
    with tempfile.TemporaryDirectory(prefix="trilemma-load-") as scratch:
        folder = Path(scratch)
        if out is not None:
            folder = out / f"{scenario.name}_logs"
            folder.mkdir(parents=True, exist_ok=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seen = runner.run(_terminable(scenario, folder))
    return report(scenario, seen), seen


class _Ended(Exception):
    """A signal ended the run, and all that it had started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


async def _terminable(scenario: Scenario, folder: Path) -> Observed:
    """Signals unwind the stack, so that what was started is stopped."""
    task = asyncio.current_task()
    assert task is not None
    ended: list[int] = []

    def end(number: int) -> None:
        ended.append(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        return await run(scenario, folder, _progress)
    except asyncio.CancelledError:
        raise _Ended(ended[0] if ended else signal.SIGINT) from None
    except ExceptionGroup as group:
        told, other = group.split(ScenarioError)
        if told is None or other is not None:
            raise
        raise _first(told) from None


def _first(group: BaseExceptionGroup[ScenarioError]) -> ScenarioError:
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trilemma load", description="Run a load scenario (docs/load.md); loadtests/scenarios holds those that ship with the product."
    )
    parser.add_argument("scenario", type=Path, metavar="SCENARIO.yaml")
    parser.add_argument("--json", action="store_true", help="print one JSON object, alone on stdout")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the JSON object, every request as CSV, and logs there")
    return parser


def _progress(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
