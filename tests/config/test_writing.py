from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.writing import Changed, NotWritable, replace


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that says `old`, alone in its folder."""
    folder = tmp_path / "etc"
    folder.mkdir()
    file = folder / "trilemma.yaml"
    file.write_text("old")
    return file


def test_the_text_is_replaced_and_nothing_is_left_over(file: Path) -> None:
    replace(file, "old", "nöu\r\n")

    assert file.read_bytes() == "nöu\r\n".encode()
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_mode_and_owner_stay(file: Path, mode: int) -> None:
    file.chmod(mode)
    if os.geteuid() == 0:
        os.chown(file, 12, 34)
    before = file.stat()

    replace(file, "old", "new")

    after = file.stat()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino, "whoever reads the old one goes on reading it"


def test_a_byte_order_mark_is_no_change(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfold")

    replace(file, "old", "new")

    assert file.read_text() == "new"


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(file)

    replace(link, "old", "new")

    assert link.is_symlink()
    assert file.read_text() == "new"


@pytest.mark.parametrize("there", [b"changed", b"\xff", b"#" * 1_000_001, None])
def test_what_has_changed_is_left_alone(file: Path, there: bytes | None) -> None:
    if there is None:
        file.unlink()
    else:
        file.write_bytes(there)

    with pytest.raises((Changed, NotWritable)):
        replace(file, "old", "new")

    assert (file.read_bytes() if there is not None else None) == there
    assert len(list(file.parent.iterdir())) == (there is not None)


@pytest.mark.parametrize("which", ["file", "folder"])
def test_what_is_read_only_is_left_alone(file: Path, which: str) -> None:
    """By root too, who could write it: a mounted ConfigMap, say."""
    target = file if which == "file" else file.parent
    mode = target.stat().st_mode
    target.chmod(mode & 0o555)
    try:
        with pytest.raises(NotWritable, match="read-only"):
            replace(file, "old", "new")
        assert file.read_text() == "old"
    finally:
        target.chmod(mode)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotWritable, match="no such file or directory"):
        replace(tmp_path / "gone" / "c.yaml", "old", "new")


def test_of_many_processes_one_is_first(file: Path) -> None:
    code = "import sys; from pathlib import Path; from gateway.config.writing import *\n"
    code += "sys.stdin.readline()\ntry: replace(Path(sys.argv[1]), 'old', sys.argv[2]); print('done')\nexcept Changed: print('changed')"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, file, f"new {n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for each in processes:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()

    said = [each.communicate(timeout=60)[0].strip() for each in processes]

    assert sorted(said) == ["changed"] * 3 + ["done"]
    assert file.read_text() == f"new {said.index('done')}"
