"""Putting another text in a file's place: whole or not at all, and only if nobody has changed it meanwhile."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gateway.config.files import read, reason
from gateway.config.tree import MAX_BYTES

_WRITABLE: Final = 0o222


class NotWritable(Exception):
    """The file cannot be replaced; the message says why, without its name."""


class Changed(Exception):
    """The file no longer holds what is to be replaced."""


def replace(file: Path, expected: str, text: str) -> None:
    """Replaces the whole text of a file, if it is still `expected`, keeping its mode and owner. Raises NotWritable, Changed.

    A symbolic link stays one. Of several processes that do this at once, one is first, and the others raise Changed.
    """
    target = Path(os.path.realpath(file))
    try:
        with _alone(target.parent):
            if _text(target) != expected:
                raise Changed
            _replace(target, text.encode())
    except OSError as error:
        raise NotWritable(reason(error)) from None


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else replaces a file there meanwhile. A lock of the file itself would go with it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # some network file systems lock no folders
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _text(target: Path) -> str | None:
    try:
        return read(target, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    except FileNotFoundError:
        return None


def _replace(target: Path, data: bytes) -> None:
    found = target.stat()
    # root may write anywhere, but what nobody is to write is not meant to be changed here.
    if not found.st_mode & _WRITABLE or not os.access(target, os.W_OK):
        raise NotWritable("the file is read-only")
    if not target.parent.stat().st_mode & _WRITABLE:
        raise NotWritable("its folder is read-only")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor
            os.fchown(handle, found.st_uid, found.st_gid)
            os.fchmod(handle, found.st_mode & 0o7777)
            file.write(data)
            file.flush()
            os.fsync(handle)
        os.replace(name, target)  # noqa: PTH105
    except BaseException as error:
        os.unlink(name)  # noqa: PTH108
        if isinstance(error, OSError) and error.errno == errno.EPERM:
            raise NotWritable("its owner could not be kept") from None
        raise
    _sync(target.parent)


def _sync(folder: Path) -> None:
    """The new name survives the machine, where the file system can promise that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
