from __future__ import annotations

import hashlib
import re
import uuid

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.serving.ids import DecisionIds, minted_at, request_id

NOON = 1_772_000_000_123_456_789  # ns


def test_a_decision_id_is_a_uuid7_of_its_millisecond() -> None:
    minted = DecisionIds(b"secret", clock=lambda: NOON).mint("tenant")

    assert re.fullmatch(r"[0-9a-f]{32}-[0-9a-f]{12}", minted)
    parsed = uuid.UUID(minted[:32])
    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == 1_772_000_000_123


def test_ids_sort_by_time_and_never_repeat() -> None:
    ticks = iter(range(NOON, NOON + 5_000 * 1_000_000, 1_000_000))
    ids = DecisionIds(b"secret", clock=lambda: next(ticks))
    minted = [ids.mint("t") for _ in range(5_000)]

    assert minted == sorted(minted)
    still = DecisionIds(b"secret", clock=lambda: NOON)
    assert len({still.mint("t")[:32] for _ in range(5_000)}) == 5_000


def test_every_random_bit_is_used() -> None:
    ids = DecisionIds(b"secret", clock=lambda: 0)
    ones = zeros = 0
    for _ in range(200):
        value = uuid.UUID(ids.mint("t")[:32]).int
        ones |= value
        zeros |= ~value

    random_bits = (2**12 - 1) << 64 | (2**62 - 1)
    assert ones & zeros & (2**128 - 1) == random_bits


def test_the_tag_is_keyed_over_id_and_tenant() -> None:
    minted = DecisionIds(b"secret", clock=lambda: NOON).mint("acme")
    key = hashlib.blake2b(b"secret", digest_size=32).digest()

    assert minted[33:] == hashlib.blake2b(minted[:32].encode() + b"acme", digest_size=6, key=key).hexdigest()
    assert minted[33:] != hashlib.blake2b(minted[:32].encode() + b"other", digest_size=6, key=key).hexdigest()


def test_what_is_genuine() -> None:
    """For the tenant that it was minted for, by whoever has the secret; whatever was changed in it shows."""
    ids, replica, stranger = (DecisionIds(secret) for secret in (b"secret", b"secret", b"guess"))
    minted = ids.mint("acme")
    assert replica.is_genuine(minted, "acme")
    assert not replica.is_genuine(minted, "other")
    assert not replica.is_genuine(minted, "")
    assert not stranger.is_genuine(minted, "acme")
    for at, letter in enumerate(minted):
        assert not ids.is_genuine(minted[:at] + ("0" if letter != "0" else "1") + minted[at + 1 :], "acme")
    for other in ("", minted[:-1], minted + "0", minted.upper(), minted + "\n", "é" * 45):
        assert not ids.is_genuine(other, "acme")


def test_an_id_tells_when_its_request_came() -> None:
    assert minted_at(DecisionIds(b"secret", clock=lambda: NOON).mint("t")) == 1_772_000_000.123


def test_without_a_secret_each_process_has_its_own() -> None:
    one, two = DecisionIds(clock=lambda: NOON), DecisionIds(clock=lambda: NOON)

    assert one.mint("t") != two.mint("t")


OURS = "req_0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("wished", [b"abc-1", b"A.b_c:d-9", b"x" * 128])
def test_a_callers_request_id_is_kept(wished: bytes) -> None:
    assert request_id(wished, "") == wished.decode()


@settings(deadline=None)
@given(wished=st.one_of(st.none(), st.binary(max_size=200)))
@example(wished=b"")
@example(wished=b"x" * 129)
@example(wished=b"a\n")
@example(wished=b"a b")
@example(wished=b"\xd0\xba")
@example(wished=b"a\r\nx-evil: 1")
def test_a_request_id_is_always_a_plain_token(wished: bytes | None) -> None:
    given = request_id(wished, "0123456789abcdef0123456789abcdef-tag")

    assert re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", given)
    assert given == OURS or given.encode() == wished
