"""docs/import-litellm.md says of every provider and every key of the command what becomes of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.importing.cli import main
from gateway.importing.providers import REACHABLE

PAGE = (Path(__file__).parents[2] / "docs/import-litellm.md").read_text()


def test_every_provider_that_is_mapped_is_named() -> None:
    named = set(re.findall(r"`([a-z_-]+)/`", PAGE))
    assert named == set(REACHABLE) | {"vllm"}


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["litellm", "--help"])
    options = re.findall(r"^  (--\w+|CONFIG)", capsys.readouterr().out, re.MULTILINE)
    assert set(options) == {"CONFIG", "--keys", "--out", "--json"}
    assert all(f"| `{option}" in PAGE for option in options)
