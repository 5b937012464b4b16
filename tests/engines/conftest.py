"""A state directory that has the weak model once it has been made."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def state(tmp_path_factory: pytest.TempPathFactory, made_models: Path) -> Path:
    folder = tmp_path_factory.mktemp("state")
    (folder / "models").symlink_to(made_models)
    return folder
