"""sentence-transformers, over a stand-in for the library: torch is too heavy to install for a test of this seam."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from models.encoders.sentence_transformers import encoder
from policies.values.prompt import Prompt, Turn


class SentenceTransformer:
    """Takes what the real one takes."""

    def __init__(self, model_name_or_path: str, *, local_files_only: bool = False) -> None:
        assert local_files_only
        if not (Path(model_name_or_path) / "modules.json").exists():
            raise OSError("no modules.json")

    def encode(self, sentences: str, *, convert_to_numpy: bool, show_progress_bar: bool) -> Any:
        assert convert_to_numpy
        assert not show_progress_bar
        return np.array([3.0, 4.0, 0.0], dtype=np.float32) * len(sentences)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    vars(module)["SentenceTransformer"] = SentenceTransformer
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("library")
def test_a_models_vectors_are_features(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")

    made = encoder(str(tmp_path))

    assert (made.dim, made.slow) == (3, True)
    assert made.name.startswith(f"{tmp_path.name}-")
    assert made.encode(Prompt(turns=(Turn("user", "hello"),))).tolist() == pytest.approx([0.6, 0.8, 0.0])


@pytest.mark.usefixtures("library")
def test_another_model_has_another_name(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    before = encoder(str(tmp_path)).name

    assert encoder(str(tmp_path)).name == before
    (tmp_path / "modules.json").write_text("[1]")
    assert encoder(str(tmp_path)).name != before


@pytest.mark.usefixtures("library")
def test_what_is_no_folder_of_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`all-MiniLM-L6-v2` is none"):
        encoder("all-MiniLM-L6-v2")
    with pytest.raises(ValueError, match=r"cannot load .*no modules.json"):
        encoder(str(tmp_path))


def test_without_the_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)

    with pytest.raises(ValueError, match="pip install sentence-transformers"):
        encoder(str(tmp_path))
