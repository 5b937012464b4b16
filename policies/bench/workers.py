"""Processes that work beside this one, with one thread each for linear algebra; they end with it, also when it is interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Final

_THREADS: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def workers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of them, for as long as the block lasts; an exception in the block does not wait for what they are at."""
    before = active_children()
    with _one_thread(), ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                if child not in before:
                    child.terminate()
            raise


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that are started meanwhile inherit this."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
