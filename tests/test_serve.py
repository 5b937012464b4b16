from __future__ import annotations

import subprocess
import sys


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    """500 streams are 1,000 sockets, and most systems begin at 1,024 files."""
    code = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from gateway.workers.process import raise_open_files
raise_open_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"
