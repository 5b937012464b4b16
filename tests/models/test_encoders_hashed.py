"""Hashed n-grams."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.encoders.hashed import DIM, encoder, hashed
from policies.values.prompt import Prompt, Turn

ROOT = Path(__file__).parents[2]
MASK = 2**64 - 1


def by_hand(text: str) -> list[int]:
    """The same counts in plain Python."""
    folded = "".join(each.lower() if each.isascii() and each.isalnum() else " " if each.isascii() else each for each in text).encode()
    words = [crc32(word) for word in folded.split()]
    pairs = [(one * 0xC2B2AE3D27D4EB4F + other) & MASK for one, other in pairwise(words)]
    fives = [int.from_bytes(folded[start : start + 5], "little") for start in range(len(folded) - 4)]
    counts = [0] * DIM
    for offset, ids in ((0, words + pairs), (16, fives)):
        for each in ids:
            mixed = (each * 0x9E3779B97F4A7C15) & MASK
            mixed = ((mixed ^ (mixed >> 29)) * 0xC2B2AE3D27D4EB4F) & MASK
            bucket = mixed >> 59
            counts[offset + bucket % 16] += 1 if bucket < 16 else -1
    return counts


@given(st.text(max_size=80))
def test_the_counts_are_those_of_plain_python(text: str) -> None:
    assert hashed(text).tolist() == by_hand(text)


def test_case_and_punctuation_do_not_count() -> None:
    assert hashed("Hello, World").tolist() == hashed("hello  world").tolist()
    assert hashed("hello world").tolist() != hashed("world hello").tolist()


def encoded(*texts: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return encoder().encode(Prompt(turns=tuple(Turn("user", text) for text in texts)))


def test_the_features_have_length_one() -> None:
    assert encoded("what is it").shape == (DIM,)
    assert float(np.linalg.norm(encoded("what is it", "and why"))) == pytest.approx(1.0, rel=1e-6)
    assert encoded().tolist() == encoded("").tolist() == [0.0] * DIM


def test_like_texts_have_like_features_in_any_script() -> None:
    one, near, far = (
        encoded("how do i sort a list of numbers in python"),
        encoded("how do i sort a list of strings in python"),
        encoded("tell me about the french revolution and its causes"),
    )
    assert one @ near > 0.5 > abs(one @ far)
    one, near, far = encoded("我想学习编程语言的基础知识"), encoded("我想学习编程语言的高级知识"), encoded("今天北京的天气怎么样呢朋友")
    assert one @ near > one @ far


def test_every_message_counts() -> None:
    both = encoded("sort a list in python", "ok do it")

    # The square roots of 21 and 8 characters are the messages' weights.
    expected = np.sqrt(21) * encoded("sort a list in python") + np.sqrt(8) * encoded("ok do it")
    assert both.tolist() == pytest.approx((expected / np.linalg.norm(expected)).tolist(), rel=1e-5, abs=1e-7)


def test_another_process_has_the_same_numbers() -> None:
    code = "from models.encoders.hashed import hashed; print(hashed('The same words, everywhere é').tolist())"
    told = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]

    assert told == [f"{hashed('The same words, everywhere é').tolist()}\n"] * 2
