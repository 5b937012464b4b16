"""A file of replicas: taken up when it changes, kept when it is gone, broken or half written."""

# ruff: noqa: ASYNC240 - the files are the test's own, and small
from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.pool.discovery import file as module
from gateway.pool.discovery.endpoint import endpoint
from gateway.pool.discovery.file import File
from gateway.pool.discovery.source import Found
from gateway.pool.discovery.spec import FileSpec
from tests.pool.discovery.reading import Reading
from tests.pool.scripted import WITH_CLOCK

pytestmark = WITH_CLOCK


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "gpus.yaml"
    path.write_text("- http://a\n- {url: http://b/v1, weight: 2}\n")
    return path


@pytest.fixture
async def reading(path: Path) -> AsyncIterator[Reading]:
    reading = Reading()
    async with reading.of(File(FileSpec(path, interval_s=3.0), sleep=reading.sleep)):
        yield reading


async def test_urls_and_weights_in_the_order_of_the_file(reading: Reading) -> None:
    assert await reading.next() == Found((endpoint("http://a"), endpoint("http://b", 2)))


async def test_what_has_not_changed_is_confirmed(reading: Reading) -> None:
    first = await reading.next()
    assert await reading.next() == first
    assert reading.pauses == [3.0]


async def test_a_file_renamed_over_it_is_taken_up(reading: Reading, path: Path) -> None:
    await reading.next()
    new = path.with_suffix(".new")
    new.write_text("[http://c]")
    new.rename(path)
    assert await reading.found() == ["http://c"]


async def test_a_swapped_link_is_taken_up(tmp_path: Path) -> None:
    """As the kubelet updates a mounted ConfigMap: FILE -> ..data/FILE, ..data -> a new folder, renamed over the old link."""
    for number, url in (("1", "http://a"), ("2", "http://b")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "gpus.yaml").write_text(f"[{url}]")
    (tmp_path / "..data").symlink_to("1")
    (tmp_path / "gpus.yaml").symlink_to("..data/gpus.yaml")
    reading = Reading()
    async with reading.of(File(FileSpec(tmp_path / "gpus.yaml"), sleep=reading.sleep)):
        assert await reading.found() == ["http://a"]
        (tmp_path / "..data_tmp").symlink_to("2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        assert await reading.found() == ["http://b"]


async def test_a_file_that_is_gone_is_told_of_until_it_is_back(reading: Reading, path: Path) -> None:
    before = await reading.found()
    path.rename(path.with_suffix(".away"))
    assert await reading.failed() == f"{path}: no such file or directory"
    assert await reading.failed() == f"{path}: no such file or directory"
    path.with_suffix(".away").rename(path)
    assert await reading.found() == before


async def test_a_broken_file_is_told_of_until_it_is_mended(reading: Reading, path: Path) -> None:
    await reading.next()
    path.write_text("- http://a\n- [\n")
    assert "not YAML" in await reading.failed()
    assert "not YAML" in await reading.failed()
    path.write_text("- http://c\n")
    assert await reading.found() == ["http://c"]


async def test_no_replicas_is_believed_when_it_is_written(reading: Reading, path: Path) -> None:
    await reading.next()
    path.write_text("[]")
    assert await reading.found() == []


@pytest.mark.parametrize("text", ["", "\n \n"])
async def test_an_empty_file_is_one_that_is_being_written(reading: Reading, path: Path, text: str) -> None:
    await reading.next()
    path.write_text(text)
    assert await reading.failed() == f"{path}: empty (a list without replicas is written [])"


async def test_what_changes_while_it_is_read_is_read_again(reading: Reading, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is still a list when its end is missing."""
    await reading.next()
    read = module.read

    def reads_half(path: Path, limit: int) -> bytes:
        half = read(path, limit)
        path.write_text("- http://c\n- http://d\n")
        return half

    path.write_text("- http://c\n")
    with monkeypatch.context() as patched:
        patched.setattr(module, "read", reads_half)
        assert await reading.failed() == f"{path}: changed while it was read"
    assert await reading.found() == ["http://c", "http://d"]


async def test_a_folder_bytes_and_too_much_are_failures(reading: Reading, path: Path) -> None:
    await reading.next()
    path.write_bytes(b"- http://a\xff\n")
    assert await reading.failed() == f"{path}: not UTF-8 text"
    path.write_text("#" * 1_000_001)
    assert await reading.failed() == f"{path}: larger than 1000000 bytes"
    path.unlink()
    path.mkdir()
    assert await reading.failed() == f"{path}: is a directory"
