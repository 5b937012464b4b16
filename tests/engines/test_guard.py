"""A guarded process ends with its parent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.engines import guard
from tests.engines.real_processes import alive, eventually

PARENT = """
import subprocess, sys, time
from gateway.engines.guard import guarded
child = subprocess.Popen(guarded([sys.executable, "-c", "print('on', flush=True); import time; time.sleep(600)"]))
print(child.pid, flush=True)
time.sleep(600)
"""


def test_the_command_takes_the_guards_place() -> None:
    with subprocess.Popen(guard.guarded(["sh", "-c", "echo $$; exit 7"]), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
    assert int(said) == process.pid
    assert process.returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
async def test_it_ends_when_the_parent_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    lines = {await parent.stdout.readline(), await parent.stdout.readline()}
    assert b"on\n" in lines  # the command runs, so the guard has done its work
    (pid,) = (int(line) for line in lines - {b"on\n"})
    assert alive(pid)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not alive(pid))


def test_a_parent_that_is_gone_already_starts_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    command = guard.guarded(["touch", str(marker)])
    command[command.index(str(os.getpid()))] = str(os.getppid())
    assert subprocess.run(command, check=False).returncode == 0
    assert not marker.exists()


def test_a_command_that_cannot_run_is_told(tmp_path: Path) -> None:
    missing = subprocess.run(guard.guarded(["/no/such/program"]), check=False, capture_output=True, text=True)
    assert missing.returncode == 127
    assert missing.stderr == "cannot run /no/such/program: No such file or directory\n"
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    refused = subprocess.run(guard.guarded([str(plain)]), check=False, capture_output=True, text=True)
    assert refused.returncode == 126
    assert refused.stderr == f"cannot run {plain}: Permission denied\n"


def test_wrong_usage_is_told() -> None:
    with pytest.raises(SystemExit, match="usage: guard"):
        guard.main(["1", "sleep", "1"])
