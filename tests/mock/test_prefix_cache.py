from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from gateway.mock.prefix_cache import PrefixCache, block_names, tokens_saved


def words(*counts: tuple[str, int]) -> list[str]:
    return [word for word, count in counts for _ in range(count)]


def test_whole_blocks_have_names_that_stand_for_all_before_them() -> None:
    """Blocks are 32 tokens: 100 tokens are three of them and a rest."""
    one = block_names(words(("a", 100)))
    longer = block_names(words(("a", 128), ("b", 40)))
    other = block_names(words(("b", 32), ("a", 64)))

    assert len(one) == 3
    assert longer[:3] == one
    assert len(longer) == 5
    assert not set(one) & set(other)
    assert block_names(words(("a", 31))) == []


def test_names_are_the_same_in_every_process() -> None:
    digest = hashlib.blake2b(b"a" * 32, digest_size=8).digest()

    assert block_names(["a"] * 32) == [int.from_bytes(digest)]


def test_a_cache_holds_the_blocks_before_the_first_it_lacks() -> None:
    cache = PrefixCache(4)

    assert cache.use([1, 2, 3]) == 0
    assert cache.use([1, 2, 9]) == 2
    assert cache.use([5]) == 0  # goes in for 3, the end of the older prompt
    assert cache.use([1, 2, 3]) == 2
    assert cache.use([8, 1]) == 0


def test_of_a_prompt_that_is_too_long_the_beginning_is_held() -> None:
    cache = PrefixCache(2)

    assert [cache.use([1, 2, 3]), cache.use([1, 2, 3])] == [0, 2]


@given(st.integers(1, 8), st.lists(st.lists(st.integers(0, 5), max_size=6, unique=True), max_size=30))
def test_never_more_than_there_is_room_for(blocks: int, prompts: list[list[int]]) -> None:
    cache = PrefixCache(blocks)
    for prompt in prompts:
        assert cache.use(prompt) <= min(blocks, len(prompt))
        assert cache.use(prompt) == min(blocks, len(prompt))


def test_the_last_token_is_always_computed() -> None:
    assert [tokens_saved(held, tokens) for held, tokens in ((2, 100), (3, 100), (2, 65), (2, 64), (1, 32), (0, 0))] == [
        64,
        96,
        64,
        32,
        0,
        0,
    ]
