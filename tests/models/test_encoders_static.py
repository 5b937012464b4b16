"""The static embedding: the packaged one, and others in the same format."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import models.weights
from models.encoders.static import encoder
from policies.values.prompt import Prompt, Turn
from tests.support import embeddings

WEIGHTS = Path(models.weights.__path__[0])


def prompt(*texts: str) -> Prompt:
    return Prompt(turns=tuple(Turn("user", text) for text in texts))


def test_a_text_is_the_mean_of_its_tokens(tmp_path: Path) -> None:
    made = encoder(str(embeddings.static(tmp_path, red=(1, 0), green=(0, 1), blue=(3, 4))))

    assert made.dim == 2
    assert not made.slow
    assert made.encode(prompt("Red")).tolist() == [1.0, 0.0]
    assert made.encode(prompt("blue")).tolist() == pytest.approx([0.6, 0.8])
    assert made.encode(prompt("red green")).tolist() == pytest.approx([sqrt(0.5)] * 2)
    # Its tokenizer would cut at three tokens, and pad: neither is done here.
    assert made.encode(prompt("red red red red green green green")).tolist() == pytest.approx([0.8, 0.6])


def test_what_has_no_tokens_is_zeros(tmp_path: Path) -> None:
    made = encoder(str(embeddings.static(tmp_path, red=(1, 0))))

    for nothing in (prompt(), prompt(""), prompt("  "), prompt("unknown \ud800")):
        assert made.encode(nothing).tolist() == [0.0, 0.0]


def test_another_embedding_has_another_name(tmp_path: Path) -> None:
    one = encoder(str(embeddings.static(tmp_path / "one", red=(1, 0))))
    other = encoder(str(embeddings.static(tmp_path / "other", red=(0, 1))))
    again = encoder(str(embeddings.static(tmp_path / "again", red=(1, 0))))

    assert one.name == again.name != other.name
    assert re.fullmatch("static-[0-9a-f]{8}", one.name)


def test_the_packaged_embedding_knows_what_is_alike() -> None:
    made = encoder()
    texts = ("What is the derivative of x squared?", "Compute the integral of a polynomial", "Best restaurants for dinner in Rome")
    maths, more, food = (made.encode(prompt(text)) for text in texts)

    assert (made.name, made.dim, made.slow) == ("static-1", 64, False)
    assert maths @ more > 0.3 > maths @ food


def test_any_script_and_any_length_has_features() -> None:
    made = encoder()

    for text in ("你好吗", "\ud800 \x00 ⁇", "a" * 100_000, "word " * 50_000):
        block = made.encode(prompt(text))
        assert float(np.linalg.norm(block)) == pytest.approx(1.0, rel=1e-5)


def test_the_packaged_files_are_those_that_the_readme_tells_of() -> None:
    told = dict(re.findall(r"^\| `(static-1/[\w.]+)` \| `([0-9a-f]{64})` \|$", (WEIGHTS / "README.md").read_text(), re.MULTILINE))

    assert told == {
        f"static-1/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted((WEIGHTS / "static-1").iterdir())
    }


def test_the_packaged_files_are_in_model2vecs_format() -> None:
    arrays = load_file(str(WEIGHTS / "static-1" / "model.safetensors"))
    config = json.loads((WEIGHTS / "static-1" / "config.json").read_text())

    assert {name: (array.shape, array.dtype) for name, array in arrays.items()} == {"embeddings": ((30_522, 64), np.float16)}
    assert (config["model_type"], config["hidden_dim"], config["normalize"]) == ("model2vec", 64, True)


@pytest.mark.parametrize("library", ["tokenizers", "safetensors"])
def test_without_the_extra_it_says_what_to_install(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(ValueError, match=re.escape(f"the encoder `static` needs {library}: pip install 'trilemma[embeddings]'")):
        encoder()


def test_a_folder_that_holds_no_embedding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no file .*tokenizer.json"):
        encoder(str(tmp_path))
    embeddings.tokenizer(["red"]).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"there is no file .*model.safetensors"):
        encoder(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="is no file of safetensors"):
        encoder(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match="is no tokenizer"):
        encoder(str(tmp_path))


def test_an_embedding_of_other_tokens_is_refused(tmp_path: Path) -> None:
    embeddings.static(tmp_path, red=(1, 0))
    embeddings.tokenizer(["red", "green"]).save(str(tmp_path / "tokenizer.json"))

    with pytest.raises(ValueError, match="holds no embedding of its tokenizer's tokens"):
        encoder(str(tmp_path))
