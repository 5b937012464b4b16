"""Files that a configuration is read from: bounded reads, and stamps by which a change is noticed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells one state of a file from another. `target`: the file behind links (a ConfigMap swaps those)."""

    target: str
    device: int
    inode: int
    size: int
    mtime_ns: int


def stamp(path: Path) -> Stamp | None:
    """The stamp of `path`, or None while it is not there or cannot be looked at."""
    try:
        target = os.path.realpath(path)
        status = path.stat()
    except (OSError, ValueError):
        return None
    return Stamp(target, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def read(path: Path, limit: int) -> bytes:
    """The whole file. Raises OSError, also when it holds more than `limit` bytes or its name cannot be one."""
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except ValueError as error:  # a NUL or a lone surrogate in the name
        raise OSError("not a usable file name") from error
    if len(data) > limit:
        raise OSError(f"larger than {limit} bytes")
    return data


def read_secret(path: Path) -> str:
    """The text of a secret's file, without one trailing newline. Raises OSError, also when it is empty or not UTF-8."""
    try:
        text = read(path, 65_536).decode()
    except UnicodeDecodeError:
        raise OSError("not UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise OSError("empty")
    return text


def unreadable(path: Path, error: OSError) -> str:
    """A sentence about a file that could not be read."""
    return f"{path} cannot be read: {reason(error)}"


def reason(error: OSError) -> str:
    """Why a file could not be read, without its name."""
    return (error.strerror or str(error)).lower()
