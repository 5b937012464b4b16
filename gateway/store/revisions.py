"""The schema's versions, known without Alembic: one file each in migrations/versions, named as its revision, in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def folder() -> Path:
    """Where the migrations are: in the package when it was installed, at the top of a checkout."""
    packaged = Path(__file__).with_name("migrations")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "migrations"


def known() -> Sequence[str]:
    """Every revision, oldest first; the last is what this version of Trilemma wants."""
    return sorted(file.stem for file in folder().glob("versions/[0-9]*.py"))


def is_behind(found: str | None) -> bool:
    """Whether a database at this revision (None: at none) is older than what this version wants. What a newer one made is fit for this one
    too (migrations/README.md)."""
    revisions = known()
    return found is None or (found in revisions and found != revisions[-1])
