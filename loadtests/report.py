"""Every scenario, one after the other, and one Markdown table of what came of them.

    python -m loadtests.report [SCENARIO.yaml ...] [--out out/load] [--read] [--into docs/load.md]

Runs what is named, or all of loadtests/scenarios, as `trilemma load` does, which leaves its reports in the `--out` folder; `--read` runs
nothing, and takes what lies there. `--into` puts the table into a page, between the lines `<!-- scenarios -->` and `<!-- /scenarios -->`.
A scenario with several kinds of load has a line for each. Ends with 0 when every expectation was kept, 1 when one was not, 2 when one
could not be run.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.load.report import Report

_ROOT: Final = Path(__file__).resolve().parent
_BEGIN, _END = "<!-- scenarios -->", "<!-- /scenarios -->"
_HEAD: Final = (
    "| scenario | verdict | requests | goodput | shed | added p50, p95, p99 ms | calls per request | fairness | `/health` max ms |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def table(reports: Sequence[Report]) -> str:
    """The table, then what was missed, and what it was measured on."""
    rows = [_row(one, "", one.scenario, "passed" if one.passed else "**missed**") for one in reports]
    lines = [_HEAD]
    for one, row in zip(reports, rows, strict=True):
        loads = [name.removesuffix(".offered") for name in one.figures if name.endswith(".offered")]
        lines += [row, *(_row(one, f"{load}.", f"&nbsp;&nbsp;{load}", "") for load in loads)]
    missed = [f"- `{one.scenario}`: {', '.join(_missed(one))}" for one in reports if not one.passed]
    return "\n".join([*lines, *(["", "Missed:", "", *missed] if missed else []), "", *_measured_on(reports)]) + "\n"


def put(page: str, text: str) -> str:
    """The page with the text between its marks. Raises ValueError when it has none."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {_BEGIN} ... {_END}")
    return f"{before}{_BEGIN}\n\n{text}\n{_END}{after}"


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.report", description="All scenarios, and a table of what came of them.")
    parser.add_argument("scenarios", type=Path, nargs="*", metavar="SCENARIO.yaml", help="default: all of loadtests/scenarios")
    parser.add_argument("--out", type=Path, default=Path("out/load"), metavar="DIR", help="where the reports lie (default out/load)")
    parser.add_argument("--read", action="store_true", help="run nothing, read what lies there")
    parser.add_argument("--into", type=Path, metavar="PAGE.md", help="put the table into this page instead of printing it")
    options = parser.parse_args(argv)
    files = options.scenarios or sorted((_ROOT / "scenarios").glob("*.yaml"))
    failed = [] if options.read else [file for file in files if _run(file, options.out) not in (0, 1)]
    reports = list(_read(files, failed, options.out))
    text = table(reports)
    if options.into is None:
        sys.stdout.write(text)
    else:
        options.into.write_text(put(options.into.read_text(), text))
    if len(reports) < len(files):
        return 2
    return 0 if all(one.passed for one in reports) else 1


def _run(file: Path, out: Path) -> int:
    """The exit status; what the run says goes to stderr."""
    command = [sys.executable, "-m", "gateway", "load", str(file.resolve()), "--out", str(out.resolve())]
    return subprocess.run(command, stdout=2, check=False, cwd=_ROOT.parent).returncode  # noqa: S603 - our own command


def _read(files: Sequence[Path], failed: Sequence[Path], out: Path) -> Iterator[Report]:
    for file in files:
        found = out / f"{file.stem}.json"
        if file not in failed and found.is_file():
            yield msgspec.json.decode(found.read_bytes(), type=Report)
        else:
            sys.stderr.write(f"{file.stem}: no report\n")


def _row(report: Report, prefix: str, name: str, verdict: str) -> str:
    """One line, of the whole run or of a kind of load; fairness and health are the run's."""
    figures = report.figures

    def of(figure: str) -> float | None:
        return figures.get(f"{prefix}{figure}")

    added = ", ".join(_number(of(f"added_{percent}_ms")) for percent in ("p50", "p95", "p99"))
    whole = ("", "") if prefix else (_number(figures["jain"], 3), _number(figures["health_max_ms"]))
    shares = (_percent(of("goodput_share")), _percent(of("shed_share")))
    return f"| {' | '.join((name, verdict, _number(of('offered')), *shares, added, _number(of('calls_per_request'), 3), *whole))} |"


def _missed(report: Report) -> list[str]:
    missed = [f"`{one.figure}` {one.bound()}, was {_number(one.value, 3)}" for one in report.expectations if not one.kept]
    return missed or ["the gateway ended"]


def _measured_on(reports: Sequence[Report]) -> list[str]:
    """A sentence for each machine and commit; usually one."""
    said = []
    for one in reports:
        machine: Mapping[str, Any] = one.tables["machine"]
        said.append(
            f"Version {one.version}, commit {one.commit or 'unknown'}; {machine['cpus']} CPUs ({machine['cpu']}), {machine['system']}."
        )
    return list(dict.fromkeys(said))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{_number(100 * share, 2)} %"


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:,.0f}"


if __name__ == "__main__":
    sys.exit(main())
