"""Two workers, one set of numbers; and counting that fails harms no request."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.serving.call import Receipt
from gateway.telemetry.gauges import Sources
from gateway.telemetry.snapshots import SnapshotFolder
from gateway.telemetry.telemetry import Telemetry
from gateway.wire.usage import Usage
from tests.support.scraping import Scrape
from tests.support.waiting import until
from tests.telemetry.receipts import TEXT, receipt, state, upstream


def worker(folder: Path, slot: int, run: str = "run") -> Telemetry:
    telemetry = Telemetry(folder=SnapshotFolder(folder, run, slot))
    found = state()
    telemetry.follow(found)
    telemetry.look_at(Sources(state=lambda: found, reload_failures=lambda: 0))
    return telemetry


async def seen(telemetry: Telemetry) -> Scrape:
    text, _ = await telemetry.exposed("")
    return Scrape(text.decode())


def one(tokens: int = 10) -> Receipt:
    return receipt(upstream(usage=Usage(1, 0, tokens)))


async def wrote(folder: Path, slot: int, tokens: float) -> None:
    """Until the slot's file holds so many tokens."""
    reader = SnapshotFolder(folder, "run", None)

    def told() -> bool:
        (snapshot,) = [each for each in reader.others() if each.get("trilemma_tokens", {}).get(("m", "output", "served"), 0.0) == tokens]
        return bool(snapshot)

    def there() -> bool:
        try:
            return told()
        except ValueError:
            return False

    await until(there, f"{tokens} tokens of worker {slot}")


async def test_any_worker_tells_of_all(tmp_path: Path) -> None:
    first, second = worker(tmp_path, 0), worker(tmp_path, 1)
    async with first.running(), second.running():
        first.settled(one(10))
        second.settled(one(32))
        await wrote(tmp_path, 0, 10.0)
        await wrote(tmp_path, 1, 32.0)
        for telemetry in (first, second):
            got = await seen(telemetry)
            assert got.of("trilemma_tokens_total", type="output") == 42
            assert got.of("trilemma_request_duration_seconds_count") == 2
            assert got.of("trilemma_inflight", backend="a") == 0
            assert got.of("trilemma_build_info") == 1
        # One's own numbers are live.
        first.settled(one(100))
        assert (await seen(first)).of("trilemma_tokens_total", type="output") == 142
        # The sum of both processes; here they are one.
        rss = (await seen(first)).of("process_resident_memory_bytes")
        assert rss > 1.5 * Scrape((await Telemetry().exposed(""))[0].decode()).of("process_resident_memory_bytes")


async def test_counters_outlive_their_worker(tmp_path: Path) -> None:
    """It ends well: its last numbers are there at once. The next one in its slot goes on from them."""
    first, second = worker(tmp_path, 0), worker(tmp_path, 1)
    async with first.running():
        async with second.running():
            second.settled(one(32))
        got = await seen(first)
        assert got.of("trilemma_tokens_total", type="output") == 32
        assert got.of("trilemma_config_info") == 1
        again = worker(tmp_path, 1)
        again.settled(one(8))
        assert (await seen(again)).of("trilemma_tokens_total", type="output") == 40
        async with again.running():
            await wrote(tmp_path, 1, 40.0)
            assert (await seen(first)).of("trilemma_tokens_total", type="output") == 40


async def test_a_killed_worker_s_counters_stay_too(tmp_path: Path) -> None:
    """It leaves what it last wrote, and no word that it ended."""
    dead = SnapshotFolder(tmp_path, "run", 1)
    dead.write({"trilemma_tokens": {("m", "output", "served"): 32.0}, "trilemma_inflight": {("a",): 7.0}})
    first = worker(tmp_path, 0)
    assert (await seen(first)).of("trilemma_inflight", backend="a") == 7
    again = worker(tmp_path, 1)
    again.settled(one(8))
    got = await seen(again)
    assert got.of("trilemma_tokens_total", type="output") == 40
    assert got.of("trilemma_inflight", backend="a") == 0


async def test_a_folder_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "gone"
    telemetry = worker(folder, 0)
    for _ in range(3):
        telemetry._write(SnapshotFolder(folder, "run", 0), {}, ended=False)
    assert [record.getMessage() for record in caplog.records] == [
        "the other workers cannot see this one's numbers: No such file or directory"
    ]
    assert (await seen(telemetry)).of("trilemma_config_info") == 1


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Telemetry]:
    telemetry = Telemetry()
    telemetry.follow(state())

    def fail(_: Receipt) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(telemetry.metrics, "settled", fail)
    yield telemetry


def test_counting_that_fails_is_told_of_once_and_harms_nobody(broken: Telemetry, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        broken.settled(one())
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "a fault of our own" in caplog.text


async def test_numbers_that_are_switched_off_are_not_counted() -> None:
    telemetry = Telemetry()
    telemetry.follow(state("telemetry: {metrics: {enabled: false}}" + TEXT))
    telemetry.settled(one())
    assert (await seen(telemetry)).of("trilemma_requests_total") == 0
    telemetry.follow(state())
    telemetry.settled(one())
    assert (await seen(telemetry)).of("trilemma_requests_total") == 1
