"""The folder that the workers of one start share: their numbers, and what they count together. It is gone when they are.

with shared(state) as folder: ...
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LIMITS: Final = "limits.db"
"""The file in it that limits are counted in, where there is no database."""

_PREFIX: Final = "workers-"
_LOCK: Final = "lock"


@contextmanager
def shared(state: Path) -> Iterator[Path]:
    """A new folder in `state`, for this user alone. Those of gateways that were killed are cleared away. Raises OSError."""
    state.mkdir(parents=True, exist_ok=True)
    for left in state.glob(f"{_PREFIX}*"):
        _clear(left)
    made = Path(tempfile.mkdtemp(dir=state)).absolute()
    # Whoever holds the lock lives: the kernel takes it away from a process that has ended.
    lock = os.open(made / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    folder = made.with_name(_PREFIX + made.name)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(folder)  # under its name it has always been locked
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _clear(folder: Path) -> None:
    """Removes it, if nobody holds it."""
    with contextlib.suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
