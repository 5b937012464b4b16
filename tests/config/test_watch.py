# ruff: noqa: ASYNC240 - the files are the test's own, and small
from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.config.files import Stamp, stamp
from gateway.config.watch import watch

LOGGER = logging.getLogger("test.watch")


class Ticks:
    """The watcher's clock: it sleeps until the test lets it look again."""

    def __init__(self) -> None:
        self._asleep = asyncio.Event()
        self._awake = asyncio.Event()
        self.intervals: list[float] = []

    async def sleep(self, interval: float) -> None:
        self.intervals.append(interval)
        self._awake.clear()
        self._asleep.set()
        await self._awake.wait()

    async def slept(self) -> None:
        """Returns when the watcher has looked and sleeps again."""
        async with asyncio.timeout(10):
            await self._asleep.wait()

    async def look(self) -> None:
        """One more look, from beginning to end."""
        await self.slept()
        self._asleep.clear()
        self._awake.set()
        await self.slept()


class Watched:
    """A watcher of these paths, and how often it has reloaded. `at_reload` runs within the reload."""

    def __init__(self, *paths: Path) -> None:
        self.files: dict[Path, Stamp | None] = {path: stamp(path) for path in paths}
        self.reloads = 0
        self.at_reload: Callable[[], None] = lambda: None
        self.ticks = Ticks()

    async def reload(self) -> None:
        self.reloads += 1
        self.at_reload()

    async def run(self, test: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(watch(lambda: self.files, self.reload, logger=LOGGER, interval=7.0, sleep=self.ticks.sleep))
            await test()
            task.cancel()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("one")
    return path


async def test_a_change_reloads_once(file: Path) -> None:
    watched = Watched(file)

    async def test() -> None:
        await watched.ticks.look()
        assert watched.reloads == 0
        file.write_text("longer")
        await watched.ticks.look()
        await watched.ticks.look()
        assert watched.reloads == 1
        assert set(watched.ticks.intervals) == {7.0}

    await watched.run(test)


async def test_a_change_before_the_first_look_counts(file: Path) -> None:
    watched = Watched(file)
    file.write_text("since it was loaded")

    async def test() -> None:
        await watched.ticks.slept()
        assert watched.reloads == 1

    await watched.run(test)


async def test_an_atomic_rename_of_equal_size_and_time(file: Path) -> None:
    watched = Watched(file)
    before = file.stat()

    async def test() -> None:
        draft = file.with_suffix(".new")
        draft.write_text("two")
        os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
        draft.replace(file)
        await watched.ticks.look()
        assert watched.reloads == 1

    await watched.run(test)


async def test_a_swapped_configmap(tmp_path: Path) -> None:
    """Kubernetes: config.yaml -> ..data/config.yaml, and ..data is a link that is replaced."""
    for version in ("..v1", "..v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text(version)
    (tmp_path / "..data").symlink_to("..v1")
    config = tmp_path / "config.yaml"
    config.symlink_to("..data/config.yaml")
    watched = Watched(config)

    async def test() -> None:
        await watched.ticks.look()
        assert watched.reloads == 0
        (tmp_path / "..data_tmp").symlink_to("..v2")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        await watched.ticks.look()
        assert watched.reloads == 1
        assert config.read_text() == "..v2"

    await watched.run(test)


async def test_a_file_that_is_away_for_a_while(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(file)

    async def test() -> None:
        away = file.rename(file.with_suffix(".away"))
        await watched.ticks.look()
        await watched.ticks.look()
        assert watched.reloads == 0, "nothing to load"
        away.rename(file)
        await watched.ticks.look()
        assert watched.reloads == 0, "the same file as before"
        file.unlink()
        await watched.ticks.look()
        file.write_text("a new one")
        await watched.ticks.look()
        assert watched.reloads == 1

    await watched.run(test)
    assert [record.levelname for record in caplog.records if "is not there" in record.message] == ["WARNING"] * 2


async def test_a_failing_reload_is_logged_and_the_next_change_tries_again(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched(file)

    def fail() -> None:
        raise RuntimeError("cannot")

    async def test() -> None:
        watched.at_reload = fail
        file.write_text("broken")
        await watched.ticks.look()
        await watched.ticks.look()
        assert watched.reloads == 1, "no retry without a change"
        watched.at_reload = lambda: None
        file.write_text("mended, longer")
        await watched.ticks.look()
        assert watched.reloads == 2

    await watched.run(test)
    assert [record.levelname for record in caplog.records if record.exc_info] == ["ERROR"]


async def test_files_of_the_new_configuration_are_watched_and_old_ones_are_not(file: Path) -> None:
    old, new = file.with_name("old-key"), file.with_name("new-key")
    old.write_text("o")
    new.write_text("n")
    watched = Watched(file, old)

    def take_up() -> None:
        watched.files = {file: stamp(file), new: stamp(new)}

    async def test() -> None:
        watched.at_reload = take_up
        file.write_text("names another key")
        await watched.ticks.look()
        assert watched.reloads == 1
        watched.at_reload = lambda: None
        old.write_text("changed")
        await watched.ticks.look()
        assert watched.reloads == 1
        new.write_text("changed")
        await watched.ticks.look()
        assert watched.reloads == 2

    await watched.run(test)


async def test_cancelling_ends_it(file: Path) -> None:
    watched = Watched(file)
    task = asyncio.create_task(watch(lambda: watched.files, watched.reload, logger=LOGGER, sleep=watched.ticks.sleep))
    await watched.ticks.slept()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
