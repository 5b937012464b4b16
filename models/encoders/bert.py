"""BERT's encoder in numpy (Devlin et al. 2019), float32, for MiniLM and no more: no dropout, no padding, one segment.

    x0    = LN(word[t] + position + segment0)
    a     = softmax(q k' / sqrt(d_head)) v,  per head       y = LN(x + a Wo + bo)
    x'    = LN(y + gelu(y Wi + bi) Wd + bd)                 gelu(u) = u Phi(u)

Texts of one batch have the same number of tokens, so nothing is masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

_EPSILON: Final = np.float32(1e-12)


class _Norm(NamedTuple):
    weight: Array
    bias: Array


class _Linear(NamedTuple):
    """weight: (in, out)."""

    weight: Array
    bias: Array


class _Layer(NamedTuple):
    """mixed: query, key and value side by side, the query's scale in it."""

    mixed: _Linear
    attended: _Linear
    attended_norm: _Norm
    wide: _Linear
    narrow: _Linear
    norm: _Norm


class Bert:
    """The network. weights: by the names of Hugging Face's BertModel. Raises ValueError where one is missing."""

    def __init__(self, weights: Mapping[str, npt.NDArray[np.generic]], heads: int) -> None:
        self._heads = heads
        try:
            self._words = _array(weights["embeddings.word_embeddings.weight"])
            self._places = _array(weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0])
            self._norm = _norm(weights, "embeddings.LayerNorm")
            layers = 1 + max(int(name.split(".")[2]) for name in weights if name.startswith("encoder.layer."))
            self._layers = [_layer(weights, f"encoder.layer.{index}.", heads) for index in range(layers)]
        except (KeyError, ValueError, IndexError) as error:
            raise ValueError(f"these are not the weights of a BERT: {error}") from None

    @property
    def dim(self) -> int:
        """Numbers of an output vector."""
        return int(self._words.shape[1])

    @property
    def vocabulary(self) -> int:
        """Number of tokens that it knows."""
        return int(self._words.shape[0])

    def outputs(self, ids: npt.NDArray[np.intp]) -> Array:
        """The last layer's vectors: (texts, tokens, dim) for ids (texts, tokens)."""
        texts, tokens = ids.shape
        x = _normed(self._words[ids] + self._places[:tokens], self._norm).reshape(texts * tokens, self.dim)
        for layer in self._layers:
            attended = self._attention(_applied(x, layer.mixed), texts, tokens)
            y = _normed(x + _applied(attended, layer.attended), layer.attended_norm)
            x = _normed(y + _applied(gelu(_applied(y, layer.wide)), layer.narrow), layer.norm)
        return x.reshape(texts, tokens, self.dim)

    def _attention(self, mixed: Array, texts: int, tokens: int) -> Array:
        q, k, v = mixed.reshape(texts, tokens, 3, self._heads, -1).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2)
        scores -= scores.max(-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(-1, keepdims=True)
        return np.ascontiguousarray((scores @ v).swapaxes(1, 2)).reshape(texts * tokens, -1)


def gelu(x: Array) -> Array:
    """x * Phi(x), with erf by the rational approximation 7.1.26 of Abramowitz and Stegun: off by less than 1.5e-7."""
    size = np.abs(x)
    z = size * np.float32(sqrt(0.5))
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    tail = np.float32(1.061405429) * t
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(coefficient)
        tail *= t
    np.multiply(z, z, out=z)
    np.negative(z, out=z)
    np.exp(z, out=z)
    tail *= z
    # 1 + sign(x) erf(|z|) = 1 + sign(x) (1 - tail)
    size *= 1.0 - tail
    size += x
    size *= np.float32(0.5)
    return size


def _applied(x: Array, linear: _Linear) -> Array:
    product: Array = x @ linear.weight
    product += linear.bias
    return product


def _normed(x: Array, norm: _Norm) -> Array:
    x = x - x.mean(-1, keepdims=True)
    scale = np.sqrt(np.einsum("...i,...i->...", x, x) / np.float32(x.shape[-1]) + _EPSILON)
    x /= scale[..., None]
    x *= norm.weight
    x += norm.bias
    return x


def _layer(weights: Mapping[str, npt.NDArray[np.generic]], at: str, heads: int) -> _Layer:
    parts = [_linear(weights, f"{at}attention.self.{name}") for name in ("query", "key", "value")]
    scale = np.float32(1.0 / sqrt(parts[0].weight.shape[1] / heads))
    parts[0] = _Linear(parts[0].weight * scale, parts[0].bias * scale)
    return _Layer(
        _Linear(np.concatenate([each.weight for each in parts], axis=1), np.concatenate([each.bias for each in parts])),
        _linear(weights, f"{at}attention.output.dense"),
        _norm(weights, f"{at}attention.output.LayerNorm"),
        _linear(weights, f"{at}intermediate.dense"),
        _linear(weights, f"{at}output.dense"),
        _norm(weights, f"{at}output.LayerNorm"),
    )


def _linear(weights: Mapping[str, npt.NDArray[np.generic]], name: str) -> _Linear:
    return _Linear(_array(weights[f"{name}.weight"].T), _array(weights[f"{name}.bias"]))


def _norm(weights: Mapping[str, npt.NDArray[np.generic]], name: str) -> _Norm:
    return _Norm(_array(weights[f"{name}.weight"]), _array(weights[f"{name}.bias"]))


def _array(values: npt.NDArray[np.generic]) -> Array:
    return np.ascontiguousarray(values, dtype=np.float32)
