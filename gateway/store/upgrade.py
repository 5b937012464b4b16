"""A database brought to the schema of this version, from a process that serves."""

from __future__ import annotations

import subprocess
import sys

from gateway.engines.guard import guarded
from gateway.store.writer import StoreError

_WITHIN_S = 600.0


def bring_up(url: str) -> None:
    """Runs `trilemma migrate` in a process of its own: SQLAlchemy and Alembic would weigh on this one for ever. Raises StoreError.

    It is told the URL where nobody else can read it: that may hold a password. Ctrl-C at a terminal is not for it: it ends with its work,
    or with this process.
    """
    command = guarded([sys.executable, "-P", "-m", "gateway.store.migrate", "--url", "-"])
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, input=url, capture_output=True, text=True, timeout=_WITHIN_S, check=False, start_new_session=True
        )
    except subprocess.TimeoutExpired:
        raise StoreError("the migration did not end") from None
    except OSError as error:
        raise StoreError(f"the migration cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        *details, reason = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise StoreError(f"the schema cannot be brought up: {reason}", "; ".join(details))
