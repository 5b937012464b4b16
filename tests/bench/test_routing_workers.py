"""The processes that the routing suite starts."""

from __future__ import annotations

import os
import time
from multiprocessing import active_children

import pytest

from policies.bench.workers import workers

DEADLINE_S = 30.0


def test_they_use_one_thread_each_and_nothing_stays_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    with workers(1) as pool:
        assert pool.submit(os.getenv, "OPENBLAS_NUM_THREADS").result() == "1"
    assert (os.environ["OPENBLAS_NUM_THREADS"], "OMP_NUM_THREADS" in os.environ) == ("7", False)


def test_an_interrupt_does_not_wait_for_them() -> None:
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt), workers(1) as pool:
        pool.submit(time.sleep, 600)
        pool.submit(time.sleep, 600)
        assert active_children()
        raise KeyboardInterrupt
    while active_children():
        assert time.monotonic() - begin < DEADLINE_S
        time.sleep(0.01)
