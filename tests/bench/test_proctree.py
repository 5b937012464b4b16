"""CPU time and memory of real process trees."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gateway.bench import proctree
from gateway.bench.proctree import Cpu

BURN = """
import subprocess, sys, threading, time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
"""
# Each says "ready", burns 0.2 s of CPU when told to, says "done" and waits to be ended.
HERE = BURN + "print('ready', flush=True); input(); burn(0.2); print('done', flush=True); input()"
CHILD = BURN + "subprocess.run([sys.executable, '-c', sys.argv[1]])"
THREAD = BURN + "print('ready', flush=True); input(); t = threading.Thread(target=burn, args=(0.2,)); t.start(); t.join()"
THREAD += "; print('done', flush=True); input()"


@contextlib.contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            for pid in reversed(proctree.tree(process.pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


@pytest.mark.parametrize("arguments", [(HERE,), (CHILD, HERE), (THREAD,)], ids=["process", "child", "ended thread"])
def test_cpu_time_of_a_process_its_children_and_its_ended_threads_is_counted(arguments: tuple[str, ...]) -> None:
    with program(*arguments) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        before = proctree.cpu(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        used = proctree.used_us(before, proctree.cpu(process.pid))
    assert used >= 180_000  # 0.2 s, less the ticks' resolution


def test_memory_covers_the_tree() -> None:
    with program(CHILD, HERE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        found = proctree.memory(process.pid)
        alone = proctree.tree(process.pid)
    assert found.processes == len(alone) == 2
    assert 2_000_000 < found.pss <= found.rss


def test_run_time_wins_unless_ticks_show_that_threads_ended() -> None:
    before = Cpu(run_ns={1: 1_000_000, 2: 0}, tick_ns={1: 0, 2: 0})
    after = Cpu(run_ns={1: 6_000_000, 2: 1_000_000, 3: 2_000}, tick_ns={1: 20_000_000, 2: 90_000_000, 3: 0})
    # 1: 5 ms of run time, ticks within their resolution; 2: 90 ms of ticks against 1 ms; 3: new since the first reading.
    assert proctree.used_us(before, after) == 5_000 + 90_000 + 2


def test_a_process_that_is_gone_counts_nothing() -> None:
    with program("pass") as process:
        process.wait()
        pid = process.pid
    assert proctree.used_us(proctree.cpu(pid), proctree.cpu(pid)) == 0
    assert proctree.memory(pid).processes == 0
