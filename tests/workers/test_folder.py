"""The folder that the workers of one start share."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from gateway.workers.folder import shared


def test_it_is_there_while_it_is_needed_and_this_user_s_alone(tmp_path: Path) -> None:
    state = tmp_path / "not" / "there yet"
    with shared(state) as one, shared(state) as other:
        assert one != other and one.is_dir() and other.is_dir()
        assert one.parent == state
        assert stat.S_IMODE(one.stat().st_mode) == 0o700
        (one / "1.numbers").write_text("x")
    assert list(state.iterdir()) == []


def test_what_a_killed_gateway_left_is_cleared_away_and_nothing_else(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from gateway.workers.folder import shared
with shared(Path(sys.argv[1])) as folder:
    (folder / "1.numbers").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, tmp_path], env=os.environ, check=False)
    (left,) = tmp_path.iterdir()
    (tmp_path / "models").mkdir()
    with shared(tmp_path) as living, shared(tmp_path):
        assert not left.exists()
        assert living.is_dir()
        assert (tmp_path / "models").is_dir()
