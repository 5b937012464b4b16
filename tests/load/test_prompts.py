from __future__ import annotations

import json

import pytest

from gateway.load.prompts import Block, prompt
from gateway.mock.tokens import split


@pytest.mark.parametrize("tokens", [1, 2, 511, 512, 2_048, 2_049, 5_000, 100_000])
def test_a_prompt_has_the_tokens_it_should(tokens: int) -> None:
    text = prompt([Block("seed", tokens)]).decode("ascii")

    assert len(split(text)) == tokens
    assert len(text) == 4 * tokens - 1
    assert json.loads(f'"{text}"') == text  # nothing in it has to be escaped


def test_the_same_blocks_give_the_same_text_and_shared_blocks_a_shared_prefix() -> None:
    one = prompt([Block("shared/0", 512), Block("shared/1", 100)])
    other = prompt([Block("shared/0", 512), Block("shared/2", 100)])

    assert one == prompt([Block("shared/0", 512), Block("shared/1", 100)])
    assert one[: 512 * 4] == other[: 512 * 4]
    assert one[512 * 4 :] != other[512 * 4 :]
    assert prompt([Block("a", 50)]) != prompt([Block("b", 50)])


def test_a_short_block_begins_as_the_long_one_does() -> None:
    assert prompt([Block("x", 512)]).startswith(prompt([Block("x", 40)]))
