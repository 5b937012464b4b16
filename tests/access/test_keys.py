from __future__ import annotations

import hashlib
import json
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.keys import Keys, Principal, authenticated, principals, require
from gateway.config.schema import Key
from gateway.serving.call import Call
from gateway.wire.errors import ApiError, Header

CANARY = "sk-canary-5d1e"
NAMES = ["qwen-small", "qwen-large", "llama", "auto"]


def key(secret: str, **settings: object) -> Key:
    return Key.model_validate({"name": "dev", "sha256": hashlib.sha256(secret.encode()).hexdigest()} | settings)


KEYS = principals([key(CANARY, tenant="acme"), key("sk-ключ", name="odd")], NAMES)


def bearer(value: bytes) -> list[Header]:
    return [(b"host", b"x"), (b"authorization", value)]


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER ", b"Bearer    "])
def test_a_good_key_is_its_principal(scheme: bytes) -> None:
    caller = authenticated(KEYS, bearer(scheme + CANARY.encode()))

    assert caller == Principal("dev", "acme", frozenset({"inference"}), None)
    assert require(caller, "inference", ()) is caller


BAD = [
    b"",
    b"Bearer",
    b"Bearer ",
    b"Bearer  ",
    CANARY.encode(),
    b"Basic " + CANARY.encode(),
    b"BearerX " + CANARY.encode(),
    b"Bearer" + CANARY.encode(),
    b" Bearer " + CANARY.encode(),
    b"Bearer " + CANARY.encode() + b"x",
    b"Bearer " + CANARY.encode()[:-1],
    b"Bearer " + CANARY.upper().encode(),
    b"Bearer " + CANARY.encode() + b"\n",
    b"Bearer " + CANARY.encode() + b" " + CANARY.encode(),
    b"Bearer \t" + CANARY.encode(),
    "Bearer sk-ключ".encode(),
    "Bearer sk-ключ".encode("utf-16"),
    b"Bearer \xff\xfe",
    b"Bearer " + b"x" * 100_000,
    b"Bearer " + hashlib.sha256(CANARY.encode()).hexdigest().encode(),
]


@pytest.mark.parametrize("value", BAD)
def test_anything_else_is_a_401_that_shows_nothing(value: bytes) -> None:
    headers = bearer(value)
    with pytest.raises(ApiError) as caught:
        require(authenticated(KEYS, headers), "inference", headers)

    error = caught.value
    assert (error.status, error.code) == (401, "invalid_api_key")
    assert json.loads(error.body())["error"]["type"] == "authentication_error"
    assert error.headers == ((b"www-authenticate", b"Bearer"),)
    shown = "".join(traceback.format_exception(error)) + repr(error) + error.body().decode()
    assert CANARY.casefold() not in shown.casefold()
    assert "ключ" not in shown


def test_no_key_at_all_is_told_how_to_send_one() -> None:
    with pytest.raises(ApiError, match="Authorization: Bearer") as caught:
        require(authenticated(KEYS, ()), "inference", ())
    assert caught.value.status == 401


def test_two_authorization_headers_are_one_too_many() -> None:
    good = (b"authorization", b"Bearer " + CANARY.encode())

    assert authenticated(KEYS, [good, good]) is None
    assert authenticated(KEYS, [good, (b"authorization", b"")]) is None


@settings(deadline=None)
@given(values=st.lists(st.binary(max_size=40), max_size=3))
def test_no_header_is_a_crash(values: list[bytes]) -> None:
    assert authenticated(KEYS, [(b"authorization", value) for value in values]) is None


def test_a_scope_opens_what_it_names() -> None:
    keys: Keys = principals([key("a", scopes=["metrics"]), key("b", scopes=["inference", "admin"]), key("c", scopes=[])], NAMES)
    metrics, both, nothing = (authenticated(keys, bearer(b"Bearer " + name)) for name in (b"a", b"b", b"c"))

    assert require(metrics, "metrics", ()) is metrics
    assert require(both, "admin", ()) is both
    for caller, scope in ((metrics, "inference"), (metrics, "admin"), (both, "metrics"), (nothing, "inference")):
        with pytest.raises(ApiError) as caught:
            require(caller, scope, ())
        assert (caught.value.status, caught.value.code) == (403, "caller_forbidden_scope")
        assert scope in caught.value.message


@pytest.mark.parametrize(
    ("patterns", "usable"),
    [
        (["*"], NAMES),
        (["qwen-*"], ["qwen-small", "qwen-large"]),
        (["*-small", "auto"], ["qwen-small", "auto"]),
        (["llam?"], ["llama"]),
        (["QWEN-*"], []),
        (["qwen"], []),
        ([], []),
        (["nothing-*"], []),
        (["llama", "*"], NAMES),
    ],
)
def test_patterns_say_which_models(patterns: list[str], usable: list[str]) -> None:
    (caller,) = principals([key("a", models=patterns)], NAMES).values()

    assert [name for name in NAMES if caller.may_use(name)] == usable
    assert caller.may_use("unheard-of") == ("*" in patterns)


def test_only_digests_are_kept() -> None:
    assert CANARY not in repr(KEYS)
    assert hashlib.sha256(CANARY.encode()).digest() in KEYS


def test_a_call_does_not_show_its_headers() -> None:
    call = Call("POST", "/v1/chat/completions", b"key=" + CANARY.encode(), bearer(b"Bearer " + CANARY.encode()), 0.0)

    assert repr(call) == "Call(POST /v1/chat/completions)"
