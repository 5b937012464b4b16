"""`trilemma import litellm CONFIG`: another gateway's configuration as Trilemma's, and a list of what could not be mapped."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gateway.config.files import reason
from gateway.importing import document, dump
from gateway.importing.document import UnreadableError
from gateway.importing.litellm import Imported, UnusableError, imported
from gateway.importing.report import Entry, counts, table

_EPILOG = """\
exit status: 0 everything was mapped or is not needed; 1 written, but something could not be mapped; 2 nothing was written

The list goes to stderr. No secret is written or shown: keys of engines become references to variables, keys of callers digests.
"""


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Exit status: 0 all mapped, 1 mapped with losses, 2 nothing was written."""
    options = _parser().parse_args(argv)
    out: Path | None = options.out
    try:
        if out is not None and os.path.lexists(out):
            raise UnreadableError([f"{out}: is there already, and is not overwritten"])
        root = document.load(options.config)
        keys = dump.read(options.keys) if options.keys is not None else dump.Dump()
        result = imported(root, keys, env, datetime.now(UTC))
        if out is not None:
            _write(out, result.text)
    except UnreadableError as error:
        return _failed(options, list(error.problems), ())
    except UnusableError as error:
        return _failed(options, [f"{options.config}: {error}"], error.entries)
    sys.stdout.write(_json(options, result) if options.json else "" if out is not None else result.text)
    if not options.json:
        sys.stderr.write(table(result.entries) + _summary(options, result))
    return int(any(entry.kind == "lost" for entry in result.entries))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trilemma import", description="Import another gateway's configuration.")
    commands = parser.add_subparsers(required=True, metavar="GATEWAY")
    litellm = commands.add_parser(
        "litellm",
        help="a LiteLLM proxy's config.yaml",
        description="Write a Trilemma configuration that does what a LiteLLM proxy's did.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    litellm.add_argument("config", type=Path, metavar="CONFIG", help="LiteLLM's configuration, YAML")
    litellm.add_argument(
        "--keys", type=Path, metavar="DUMP", help="its keys: a text dump by pg_dump, or its table LiteLLM_VerificationToken as CSV or JSON"
    )
    litellm.add_argument("--out", type=Path, metavar="FILE", help="where to write; must not be there yet (default: stdout)")
    litellm.add_argument("--json", action="store_true", help="print one JSON object, with the list, and without --out the configuration")
    return parser


def _write(out: Path, text: str) -> None:
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "not a usable file name"
        raise UnreadableError([f"{out}: cannot be written: {why}"]) from None


def _failed(options: argparse.Namespace, problems: Sequence[str], entries: Sequence[Entry]) -> int:
    if options.json:
        found = [entry.as_json() for entry in entries]
        print(json.dumps({"file": str(options.config), "out": None, "written": False, "problems": problems, "entries": found}))
    else:
        sys.stderr.write(table(entries) + "".join(f"{problem}\n" for problem in problems) + "nothing was written\n")
    return 2


def _json(options: argparse.Namespace, result: Imported) -> str:
    found = {
        "file": str(options.config),
        "out": None if options.out is None else str(options.out),
        "written": True,
        "problems": [],
        "counts": counts(result.entries),
        "entries": [entry.as_json() for entry in result.entries],
        "variables": list(result.variables),
    }
    return json.dumps(found if options.out is not None else {**found, "config": result.text}) + "\n"


def _summary(options: argparse.Namespace, result: Imported) -> str:
    counted = counts(result.entries)
    where = "stdout" if options.out is None else str(options.out)
    lines = [f"written to {where}: {counted['lost']} lost, {counted['changed']} changed, {counted['todo']} for you to do"]
    if result.variables:
        lines.append(f"variables to set: {', '.join(result.variables)}")
    if options.out is not None:
        lines.append(f"see what is missing: trilemma check {options.out}")
    return "".join(line + "\n" for line in lines)
