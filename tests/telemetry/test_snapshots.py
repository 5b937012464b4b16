from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.telemetry.numbers import Bins, Snapshot
from gateway.telemetry.snapshots import STALE_S, SnapshotFolder

BINS = Bins((1, *[0] * 10, 2), 5.5)
COUNTED: Snapshot = {
    "trilemma_tokens": {("m", "input", "served"): 10.0, ("ü", "input", "served"): 1e15},
    "trilemma_client_disconnects": {(): 2.0},
    "trilemma_loop_delay_seconds": {(): BINS},
}
GAUGES: Snapshot = {"trilemma_inflight": {("a",): 3.0}, "trilemma_build": {("1", "3"): 1.0}}
ALL: Snapshot = {**COUNTED, **GAUGES}


class Machine:
    """A folder, and a clock that all workers share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 100.0

    def worker(self, slot: int | None, run: str = "run") -> SnapshotFolder:
        return SnapshotFolder(self.path, run, slot, lambda: self.at)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_others_wrote_is_read_as_it_was(machine: Machine) -> None:
    machine.worker(0).write(ALL)
    assert machine.worker(1).others() == [ALL]
    assert machine.worker(None).others() == [ALL]
    assert machine.worker(0).others() == []


def test_of_a_worker_that_is_silent_or_gone_only_counters_count(machine: Machine) -> None:
    machine.worker(0).write(ALL)
    machine.worker(1).write(ALL, ended=True)
    reader = machine.worker(2)
    assert reader.others() == [ALL, COUNTED]
    machine.at += STALE_S + 0.1
    assert reader.others() == [COUNTED, COUNTED]
    machine.worker(0).write(ALL)
    assert reader.others() == [ALL, COUNTED]


def test_the_next_process_of_a_slot_goes_on_where_the_last_one_stood(machine: Machine) -> None:
    """However that one ended."""
    assert machine.worker(0).before() == {}
    machine.worker(0).write(ALL)
    assert machine.worker(0).before() == COUNTED
    assert machine.worker(1).before() == {}


def test_the_last_word_stays_the_last(machine: Machine) -> None:
    """A write that was under way when the process ended comes too late."""
    worker = machine.worker(0)
    worker.write(COUNTED, ended=True)
    worker.write(ALL)
    assert machine.worker(1).others() == [COUNTED]


def test_another_start_s_numbers_are_none(machine: Machine) -> None:
    machine.worker(0, "yesterday").write(ALL)
    assert machine.worker(1).others() == []
    assert machine.worker(0).before() == {}


def changed(machine: Machine, change: Any) -> None:
    file = machine.path / "0.numbers"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: (m.path / "0.numbers").write_bytes((m.path / "0.numbers").read_bytes()[:-20]),
        lambda m: (m.path / "0.numbers").write_bytes(b""),
        lambda m: (m.path / "0.numbers").write_bytes(b"\xff\x00"),
        lambda m: (m.path / "0.numbers").write_text("[]"),
        lambda m: changed(m, lambda c: c["singles"].update(zz=[[[], 1.0]])),
        lambda m: changed(m, lambda c: c["singles"].update(trilemma_tokens=[[["too", "few"], 1.0]])),
        lambda m: changed(m, lambda c: c["singles"].update(trilemma_tokens=[[["m", "input", "served"], "many"]])),
        lambda m: changed(m, lambda c: c["singles"].update(trilemma_loop_delay_seconds=[[[], 1.0]])),
        lambda m: changed(m, lambda c: c["histograms"].update(trilemma_loop_delay_seconds=[[[], [1, 2], 1.0]])),
        lambda m: changed(m, lambda c: c["histograms"].update(trilemma_inflight=[[["a"], [1, 2], 1.0]])),
        lambda m: changed(m, lambda c: c.update(slot=7)),
        lambda m: changed(m, lambda c: c.update(at="now")),
        lambda m: changed(m, lambda c: c.pop("run")),
    ],
    ids=["torn", "empty", "no text", "no object", "family", "labels", "value", "kind", "bins", "no histogram", "slot", "time", "no run"],
)
def test_what_is_not_whole_or_not_ours_is_ignored(machine: Machine, spoil: Any) -> None:
    machine.worker(0).write(ALL)
    machine.worker(1).write(COUNTED)
    spoil(machine)
    assert machine.worker(2).others() == [COUNTED]
    assert machine.worker(0).before() == {}


def test_other_things_in_the_folder(machine: Machine) -> None:
    machine.worker(0).write(ALL)
    (machine.path / "1.numbers").mkdir()
    (machine.path / "2.numbers").symlink_to(machine.path / "nowhere")
    (machine.path / "README").write_text("hello")
    (machine.path / "0.new").write_text("half")
    assert machine.worker(9).others() == [ALL]


def test_a_reader_never_sees_half_a_file(machine: Machine) -> None:
    worker, reader = machine.worker(0), machine.worker(1)
    worker.write(ALL)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            worker.write(ALL)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert all(reader.others() == [ALL] for _ in range(300))
    finally:
        stop.set()
        thread.join()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "gone")
    assert machine.worker(0).others() == []
    assert machine.worker(0).before() == {}
    with pytest.raises(OSError, match="No such file"):
        machine.worker(0).write(ALL)
