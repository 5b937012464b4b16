from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.wire.encoding import Inflater, inflater
from tests.wire.splits import cuts, reads

FUZZ = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def bare(data: bytes) -> bytes:
    """Deflate without a wrapper."""
    compress = zlib.compressobj(wbits=-15)
    return compress.compress(data) + compress.flush()


ENCODERS = {b"gzip": gzip.compress, b"x-gzip": gzip.compress, b"deflate": zlib.compress}


def undone(inflate: Inflater, pieces: list[bytes]) -> bytes:
    return b"".join([inflate.feed(piece) for piece in pieces if piece]) + inflate.close()


@FUZZ
@given(data=st.binary(max_size=200), coding=st.sampled_from(sorted(ENCODERS)), cuts=cuts)
def test_any_split_inflates_to_what_was_meant(data: bytes, coding: bytes, cuts: list[int]) -> None:
    assert undone(Inflater(coding), reads(ENCODERS[coding](data), cuts)) == data


@FUZZ
@given(data=st.binary(max_size=200), cuts=cuts)
def test_deflate_without_its_wrapper_is_understood(data: bytes, cuts: list[int]) -> None:
    assert undone(Inflater(b"deflate"), reads(bare(data), cuts)) == data


@FUZZ
@given(parts=st.lists(st.binary(max_size=40), min_size=2, max_size=4), cuts=cuts)
def test_gzip_in_several_members_is_one_body(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(gzip.compress(part) for part in parts)

    assert undone(Inflater(b"gzip"), reads(body, cuts)) == b"".join(parts)


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_text_is_had_before_the_end(coding: bytes) -> None:
    compress = zlib.compressobj(wbits=31 if b"gzip" in coding else 15)
    first = compress.compress(b"data: 1\n\n") + compress.flush(zlib.Z_SYNC_FLUSH)

    assert Inflater(coding).feed(first) == b"data: 1\n\n"


@FUZZ
@given(data=st.binary(min_size=1, max_size=60), coding=st.sampled_from(sorted(ENCODERS)), keep=st.integers(0, 200))
def test_a_body_that_was_cut_is_told(data: bytes, coding: bytes, keep: int) -> None:
    whole = ENCODERS[coding](data)
    cut = whole[: 1 + keep % (len(whole) - 1)]
    with pytest.raises(zlib.error):
        undone(Inflater(coding), [cut])


@pytest.mark.parametrize("coding", sorted(ENCODERS))
@pytest.mark.parametrize("end", [b"x", b"<html>", b"\0" * 20])
def test_what_follows_the_body_is_damage(coding: bytes, end: bytes) -> None:
    with pytest.raises(zlib.error):
        undone(Inflater(coding), [ENCODERS[coding](b"data") + end])


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_what_is_not_compressed_is_damage(coding: bytes) -> None:
    with pytest.raises(zlib.error):
        undone(Inflater(coding), [b"\xff plain text that is labelled wrongly"])


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_an_empty_body_stays_empty(coding: bytes) -> None:
    assert Inflater(coding).close() == b""


@pytest.mark.parametrize("coding", [b"", b"identity", b"br", b"zstd", b"gzip, br", b"gzip;q=1"])
def test_other_codings_are_not_ours_to_undo(coding: bytes) -> None:
    assert inflater(coding) is None


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP", b" gzip ", b"X-Gzip", b"deflate"])
def test_known_codings_are_undone_however_they_are_spelt(coding: bytes) -> None:
    inflate = inflater(coding)

    assert inflate is not None
    assert undone(inflate, [ENCODERS[coding.strip().lower()](b"text")]) == b"text"


def test_a_bomb_does_not_go_off() -> None:
    """A quarter of a megabyte that would become 256: refused, in memory that is bounded."""
    bomb = gzip.compress(bytes(256 << 20), 9)
    assert len(bomb) < 1 << 20
    inflate = inflater(b"gzip")
    assert inflate is not None
    tracemalloc.start()
    try:
        with pytest.raises(zlib.error):
            inflate.feed(bomb)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()
