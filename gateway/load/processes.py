"""Processes of a run: started on the CPUs they may use, killed, frozen and ended; none outlives the run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import gateway
from gateway.bench.servers import environment, on_cpus

_END_WITHIN_S = 10.0
_TAIL = 2_000


class Process:
    """A process that can be started again. Its output goes to the log file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, cpus: frozenset[int] | None) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._cpus = cpus
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return None if self.ended else self._running.pid if self._running is not None else None

    @property
    def ended(self) -> bool:
        """Whether it does not run, by its own doing or ours."""
        return self._running is None or self._running.poll() is not None

    def start(self) -> None:
        """Starts it unless it runs."""
        if not self.ended:
            return
        root = Path(gateway.__file__).resolve().parent.parent  # so that `-m gateway` is this very tree
        with self._log.open("ab") as sink, on_cpus(self._cpus):
            self._running = subprocess.Popen(  # noqa: S603 - our own commands
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=root,
                env=environment(os.environ),
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """Sends a signal, if it runs."""
        if self._running is not None and not self.ended:
            self._running.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and waits until the kernel has closed its sockets."""
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):  # all of its group has ended by itself
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()

    async def end(self) -> None:
        """SIGTERM; after a while, or when cancelled, SIGKILL to it and all it started."""
        try:
            if self._running is not None and not self.ended:
                self._running.send_signal(signal.SIGCONT)  # it may be frozen
                self._running.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):  # then it is killed
                    await asyncio.to_thread(self._running.wait, _END_WITHIN_S)
        finally:
            self.kill()

    def last_words(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-_TAIL:].strip() or "(its log is empty)"
