"""Ties a process to its parent: when the parent ends, even by SIGKILL, the process gets SIGTERM.

    python gateway/engines/guard.py PARENT_PID -- COMMAND ARGUMENT...

becomes COMMAND (same process id) after it asked the kernel for a parent-death signal. The kernel counts from the
parent's *thread*, so start the guard from a thread that lives as long as the process. Linux only; elsewhere the
command just runs. Exit codes: 127 when the command is not found, 126 when it cannot be run, 0 when the parent is
already gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def bind(parent: int) -> None:
    """Ask for SIGTERM at the end of process `parent`; SystemExit when that is no longer this process's parent."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the signal was asked for
        raise SystemExit(0)


def guarded(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` tied to this process."""
    # By path and isolated: starts in milliseconds and cannot pick up a module of the current directory.
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), "--", *command]


def main(argv: Sequence[str]) -> None:
    """`argv`: parent's id, `--`, command."""
    if len(argv) < 3 or argv[1] != "--":
        raise SystemExit("usage: guard.py PARENT_PID -- COMMAND ARGUMENT...")
    bind(int(argv[0]))
    command = list(argv[2:])
    try:
        os.execvp(command[0], command)  # noqa: S606 - this is its purpose
    except OSError as error:
        sys.stderr.write(f"cannot run {command[0]}: {error.strerror}\n")
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from error


if __name__ == "__main__":
    main(sys.argv[1:])
