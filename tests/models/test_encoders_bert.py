"""The network in numpy, against a small one that is worked out position by position."""

from __future__ import annotations

from math import erf, exp, sqrt

import numpy as np
import pytest

from models.encoders.bert import Bert, gelu

WORDS, PLACES, DIM, WIDE, HEADS = 11, 7, 6, 10, 2


def weights(layers: int = 2) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(3)

    def some(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return rng.normal(size=shape).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": some(WORDS, DIM),
        "embeddings.position_embeddings.weight": some(PLACES, DIM),
        "embeddings.token_type_embeddings.weight": some(2, DIM),
        "embeddings.LayerNorm.weight": some(DIM),
        "embeddings.LayerNorm.bias": some(DIM),
    }
    for layer in range(layers):
        at = f"encoder.layer.{layer}"
        for name, out, into in (
            ("attention.self.query", DIM, DIM),
            ("attention.self.key", DIM, DIM),
            ("attention.self.value", DIM, DIM),
            ("attention.output.dense", DIM, DIM),
            ("intermediate.dense", WIDE, DIM),
            ("output.dense", DIM, WIDE),
        ):
            found |= {f"{at}.{name}.weight": some(out, into), f"{at}.{name}.bias": some(out)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found |= {f"{at}.{name}.weight": some(DIM), f"{at}.{name}.bias": some(DIM)}
    return found


def by_hand(ids: list[int], w: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]], layers: int) -> list[list[float]]:
    """The formulas of BERT over Python's floats."""

    def linear(x: list[float], name: str) -> list[float]:
        rows, bias = w[f"{name}.weight"].tolist(), w[f"{name}.bias"].tolist()
        return [sum(a * b for a, b in zip(row, x, strict=True)) + add for row, add in zip(rows, bias, strict=True)]

    def norm(x: list[float], name: str) -> list[float]:
        mean = sum(x) / len(x)
        spread = sqrt(sum((a - mean) ** 2 for a in x) / len(x) + 1e-12)
        return [(a - mean) / spread * g + b for a, g, b in zip(x, w[f"{name}.weight"].tolist(), w[f"{name}.bias"].tolist(), strict=True)]

    def plus(*vectors: list[float]) -> list[float]:
        return [sum(each) for each in zip(*vectors, strict=True)]

    word, place, segment = (w[f"embeddings.{name}_embeddings.weight"].tolist() for name in ("word", "position", "token_type"))
    xs = [norm(plus(word[token], place[at], segment[0]), "embeddings.LayerNorm") for at, token in enumerate(ids)]
    size = DIM // HEADS
    for layer in range(layers):
        at = f"encoder.layer.{layer}."
        q, k, v = ([linear(x, f"{at}attention.self.{name}") for x in xs] for name in ("query", "key", "value"))
        attended = []
        for mine in q:
            row: list[float] = []
            for head in range(HEADS):
                part = slice(head * size, (head + 1) * size)
                raised = [exp(sum(a * b for a, b in zip(mine[part], other[part], strict=True)) / sqrt(size)) for other in k]
                row += [sum(share * other[part][i] for share, other in zip(raised, v, strict=True)) / sum(raised) for i in range(size)]
            attended.append(row)
        ys = [
            norm(plus(x, linear(a, f"{at}attention.output.dense")), f"{at}attention.output.LayerNorm")
            for x, a in zip(xs, attended, strict=True)
        ]
        wide = [[u * 0.5 * (1 + erf(u / sqrt(2))) for u in linear(y, f"{at}intermediate.dense")] for y in ys]
        xs = [norm(plus(y, linear(u, f"{at}output.dense")), f"{at}output.LayerNorm") for y, u in zip(ys, wide, strict=True)]
    return xs


@pytest.mark.parametrize("layers", [1, 2])
def test_the_outputs_are_those_of_the_formulas(layers: int) -> None:
    w = weights(layers)
    texts = [[1, 5, 5, 2], [0, 3, 10, 2]]

    found = Bert(w, HEADS).outputs(np.array(texts))

    assert found.dtype == np.float32
    assert found.tolist() == [[pytest.approx(row, rel=1e-4, abs=1e-4) for row in by_hand(ids, w, layers)] for ids in texts]


def test_gelu_is_exact_enough() -> None:
    x = np.linspace(-6, 6, 1201, dtype=np.float32)

    assert gelu(x).tolist() == pytest.approx([u * 0.5 * (1 + erf(u / sqrt(2))) for u in x.tolist()], abs=1e-6)


def test_what_it_knows_of_itself() -> None:
    bert = Bert(weights(), HEADS)

    assert (bert.dim, bert.vocabulary) == (DIM, WORDS)


@pytest.mark.parametrize("missing", ["embeddings.LayerNorm.bias", "encoder.layer.1.output.dense.weight"])
def test_other_weights_are_refused(missing: str) -> None:
    w = weights()
    del w[missing]

    with pytest.raises(ValueError, match=missing):
        Bert(w, HEADS)
    with pytest.raises(ValueError, match="not the weights of a BERT"):
        Bert({}, HEADS)
