"""The command `trilemma`. Each command lives with its noun; this module only finds it, so that starting one does not import the rest."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from gateway import __version__

# command -> (module with `main(argv) -> int`, what it does)
COMMANDS: Final = MappingProxyType(
    {
        "up": ("gateway.quickstart", "quick start: embedded engines and the gateway, with a key to try it"),
        "serve": ("gateway.serve", "the gateway over a configuration file"),
        "check": ("gateway.config.cli", "what is wrong in a configuration file"),
        "migrate": ("gateway.store.migrate", "bring the database to the schema of this version"),
        "keys": ("gateway.access.cli", "make a key and its digest"),
        "export": ("gateway.exporting.cli", "decisions and what came of them as Parquet or lines of JSON"),
        "import": ("gateway.importing.cli", "another gateway's configuration as ours: LiteLLM"),
        "fit": ("gateway.fit.cli", "make what policies read: a static embedding, topics"),
        "replay": ("gateway.proof.replay", "what another policy would have brought, from logged outcomes"),
        "simulate": ("gateway.proof.simulate", "a policy over a matrix of outcomes, on line"),
        "power": ("gateway.proof.power", "how many requests a promotion needs"),
        "explain": ("gateway.learning.cli", "make a decision again, to the bit, and say why it came out so"),
        "bench": ("gateway.bench.cli", "measure"),
        "load": ("gateway.load.cli", "load and faults: run a scenario and say whether what is expected holds"),
        "mock-backend": ("gateway.mock.cli", "a scriptable vLLM look-alike for tests and load"),
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status (2: there is no such command; 130: Ctrl-C)."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args and args[0] in ("-V", "--version"):
        print(f"trilemma {__version__}")
        return 0
    if not args or args[0] not in COMMANDS:
        asked = args[0] if args else ""
        out = sys.stdout if asked in ("", "-h", "--help", "help") else sys.stderr
        if out is sys.stderr:
            print(f"trilemma: there is no command `{asked}`", file=out)
        print("usage: trilemma COMMAND [options]\n", file=out)
        for name, (_, what) in COMMANDS.items():
            print(f"  {name:13} {what}", file=out)
        return 0 if asked in ("-h", "--help", "help") else 2
    try:
        module = importlib.import_module(COMMANDS[args[0]][0])
        status: int = module.main(args[1:])
    except KeyboardInterrupt:
        return 130
    return status
