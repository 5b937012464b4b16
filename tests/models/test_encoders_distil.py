"""Distilling a static embedding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from models.encoders import minilm, static
from models.encoders.bert import Bert
from models.encoders.distil import principal, token_vectors, write
from policies.values.prompt import Prompt, Turn
from tests.support import embeddings


def test_principal_axes_of_points_on_a_line_and_a_bit_beside() -> None:
    points = np.array([[0, 0, 5], [3, 4, 5], [6, 8, 5], [-3, -4, 5], [-6, -8, 5]], dtype=np.float32)
    points[1] += np.array([0.4, -0.3, 0], dtype=np.float32)
    points[3] += np.array([-0.4, 0.3, 0], dtype=np.float32)

    found = principal(points, 2)

    # The line's direction is (3, 4, 0) / 5, up to the little that two points are beside it.
    assert found[:, 0].tolist() == pytest.approx([0, 5, 10, -5, -10], abs=0.05)
    assert np.abs(found[:, 1]).max() < 1.0
    assert principal(points, 3)[:, 2].tolist() == pytest.approx([0] * 5, abs=1e-5)
    assert found.mean(axis=0).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_a_tokens_vector_is_its_embedding_as_a_text(tmp_path: Path) -> None:
    folder = embeddings.minilm(tmp_path, [f"w{number}" for number in range(600)])
    bert = Bert(load_file(str(folder / "model.safetensors")), 12)
    told: list[tuple[int, int]] = []

    found = token_vectors(bert, 2, 3, lambda done, of: told.append((done, of)))

    assert found.shape == (604, 24)
    assert told == [(256, 604), (512, 604), (604, 604)]
    made = minilm.encoder(str(folder))
    for number in (0, 300, 599):
        expected = made.encode(Prompt(turns=(Turn("user", f"w{number}"),)))
        assert found[4 + number].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    rows = np.array([[0, 0]] * 4 + [[3, 4], [0, 2]], dtype=np.float32)
    write(tmp_path / "new" / "folder", rows, embeddings.tokenizer(["red", "green"]))

    made = static.encoder(str(tmp_path / "new" / "folder"))

    assert made.encode(Prompt(turns=(Turn("user", "red"),))).tolist() == pytest.approx([0.6, 0.8])
