from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from gateway.store import revisions

ROOT = Path(__file__).parents[2]
USE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from gateway.store import migrate, revisions
from gateway.store.urls import SqliteUrl
assert revisions.folder().is_relative_to(sys.argv[1]), revisions.folder()
print(migrate.migrate(SqliteUrl(Path(sys.argv[1], "d.db"))))
"""


def test_a_checkout_finds_its_own() -> None:
    assert revisions.folder() == ROOT / "migrations"
    assert revisions.known()[0] == "0001_decisions"


def test_they_are_in_the_wheel(tmp_path: Path) -> None:
    """Built, unpacked and used: an installed Trilemma has no checkout beside it."""
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path))
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    used = subprocess.run((sys.executable, "-P", "-c", USE, str(unpacked)), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (used.returncode, used.stdout) == (0, f"from nothing to {revisions.known()[-1]}\n"), used.stderr
