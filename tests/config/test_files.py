from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config.files import read, read_secret, stamp


@pytest.mark.parametrize(
    ("content", "secret"),
    [(b"abc", "abc"), (b"abc\n", "abc"), (b"abc\r\n", "abc"), (b"abc\n\n", "abc\n"), (b" abc ", " abc ")],
)
def test_a_secret_loses_one_line_end_and_nothing_else(tmp_path: Path, content: bytes, secret: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    assert read_secret(file) == secret


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 65_537])
def test_a_useless_secret_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(OSError, match=r"empty|UTF-8|larger"):
        read_secret(file)


def test_names_that_no_file_can_have_are_errors_too() -> None:
    with pytest.raises(OSError, match="file name"):
        read(Path("a\0b"), 10)
    assert stamp(Path("a\0b")) is None


def test_a_stamp_tells_a_replaced_file_of_equal_size_and_time(tmp_path: Path) -> None:
    file, other = tmp_path / "a", tmp_path / "b"
    file.write_text("one")
    other.write_text("two")
    for each in (file, other):
        os.utime(each, ns=(1, 1))
    before = stamp(file)
    assert stamp(file) == before
    other.replace(file)
    assert stamp(file) != before
    file.unlink()
    assert stamp(file) is None


def test_a_stamp_tells_a_link_that_was_pointed_elsewhere(tmp_path: Path) -> None:
    """Even where the other file shows the same inode and times, as a reused inode may."""
    (tmp_path / "old").write_text("x")
    (tmp_path / "new").hardlink_to(tmp_path / "old")
    link = tmp_path / "link"
    link.symlink_to("old")
    before = stamp(link)
    link.unlink()
    link.symlink_to("new")
    assert stamp(link) != before
