"""`trilemma check FILE [--json]`: whether a configuration can be served, with every problem at its line."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gateway.config.check import check
from gateway.config.load import load
from gateway.config.problems import ConfigError, Problem, UnreadableConfigError


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Exit status: 0 it can be served (perhaps with warnings), 1 it cannot, 2 the file cannot be read."""
    parser = argparse.ArgumentParser(prog="trilemma check", description="Check a configuration file; nothing is started.")
    parser.add_argument("file", type=Path, metavar="FILE", help="the configuration, YAML")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    problems: tuple[Problem, ...]
    hash_, status = None, 0
    try:
        loaded = load(options.file, env)
    except UnreadableConfigError as error:
        problems, status = error.problems, 2
    except ConfigError as error:
        problems, status = error.problems, 1
    else:
        hash_ = loaded.hash
        problems = loaded.located(check(loaded.config))
        status = int(any(problem.severity == "error" for problem in problems))
    report = _json if options.json else _text
    sys.stdout.write(report(str(options.file), hash_, problems, status) + "\n")
    return status


def _json(file: str, hash_: str | None, problems: Sequence[Problem], status: int) -> str:
    found = [asdict(problem) for problem in problems]
    return json.dumps({"file": file, "ok": status == 0, "hash": hash_, "problems": found})


def _text(file: str, hash_: str | None, problems: Sequence[Problem], status: int) -> str:
    lines = [problem.text(file) for problem in problems]
    errors = sum(problem.severity == "error" for problem in problems)
    counted = ", ".join(
        f"{count} {word}{'' if count == 1 else 's'}" for count, word in ((errors, "error"), (len(problems) - errors, "warning")) if count
    )
    verdict = f"{file}: {'good' if status == 0 else 'not usable'}"
    verdict += f" (hash {hash_[:12]})" if hash_ is not None and status == 0 else ""
    return "\n".join([*lines, verdict + (f": {counted}" if counted else "")])
