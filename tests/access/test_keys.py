from __future__ import annotations

import hashlib
import json
import traceback
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.access.keys import Keys, Principal, authenticated, principals, require
from gateway.config.schema import Key, Limits
from gateway.serving.call import Call
from gateway.store.keys import StoredKey
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


# -- what a key is beside its digest


@pytest.mark.parametrize(
    ("expires", "at"),
    [
        ("2030-12-31", "2031-01-01T00:00:00+00:00"),  # at the end of that day, UTC
        ("2030-12-31T12:00:00Z", "2030-12-31T12:00:00+00:00"),
        ("2030-12-31T12:00:00+02:00", "2030-12-31T10:00:00+00:00"),
        ("2030-12-31 12:00Z", "2030-12-31T12:00:00+00:00"),
    ],
)
def test_when_a_key_ends(expires: str, at: str) -> None:
    (caller,) = principals([key("a", expires=expires)], NAMES).values()

    assert caller.expires == datetime.fromisoformat(at).timestamp()


@pytest.mark.parametrize("expires", ["", "soon", "2030-12-31T12:00:00", "2030-13-01", "9999-12-31", "31.12.2030", "1893456000"])
def test_a_time_that_is_none_is_refused(expires: str) -> None:
    with pytest.raises(ValidationError, match="should be a time with its zone"):
        key("a", expires=expires)


def test_an_expired_key_is_told_so_and_one_that_is_not_yet_opens() -> None:
    keys = principals([key("old", expires="2020-01-01"), key("good", name="good", expires="2999-01-01")], NAMES)
    old, good = (authenticated(keys, bearer(b"Bearer " + name)) for name in (b"old", b"good"))

    assert require(good, "inference", ()) is good
    for scope in ("inference", "admin"):
        with pytest.raises(ApiError, match="has expired") as caught:
            require(old, scope, ())
        assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")


def test_keys_of_the_database_are_beside_those_of_the_configuration_which_win() -> None:
    def stored(secret: str, **properties: object) -> StoredKey:
        sha256 = hashlib.sha256(secret.encode()).hexdigest()
        return StoredKey(**({"id": secret, "name": secret, "sha256": sha256, "created": 1.0} | properties))  # type: ignore[arg-type]

    keys = principals(
        [key("both", name="configured", limits={"tpm": 7})],
        NAMES,
        Limits.model_validate({"key": {"rpm": 5}}),
        [
            stored("both", models=("llama",)),
            stored("mine", tenant="acme", scopes=("admin",), models=("qwen-*",), priority="batch", rpm=9, tags={"a": "b"}, expires=5.0),
            stored("gone", revoked=3.0),
        ],
    )
    both, mine, gone = (authenticated(keys, bearer(b"Bearer " + name)) for name in (b"both", b"mine", b"gone"))
    assert gone is None
    assert both is not None and (both.key, both.models) == ("configured", None)
    assert [(limit.kind, limit.most) for limit in both.limits] == [("requests", 5), ("tokens", 7)]
    assert mine is not None
    assert (mine.key, mine.tenant, mine.scopes, mine.models) == ("mine", "acme", {"admin"}, {"qwen-small", "qwen-large"})
    assert (mine.priority, mine.tags, mine.expires) == ("batch", {"a": "b"}, 5.0)
    assert [(limit.kind, limit.most) for limit in mine.limits] == [("requests", 9)]


# -- the header of Anthropic's clients


def test_the_other_header_holds_the_key_alone() -> None:
    good = [(b"x-api-key", CANARY.encode())]
    assert authenticated(KEYS, good) is authenticated(KEYS, bearer(b"Bearer " + CANARY.encode())) is not None
    for value in (b"", b" ", b"Bearer " + CANARY.encode(), CANARY.encode() + b" ", "ключ".encode(), b"\xff", b"x" * 10_000):
        headers = [(b"x-api-key", value)]
        with pytest.raises(ApiError) as caught:
            require(authenticated(KEYS, headers), "inference", headers)
        assert (caught.value.status, caught.value.message) == (401, "Incorrect API key provided.")


def test_both_headers_must_hold_one_key() -> None:
    bearing, bare = (b"authorization", b"Bearer " + CANARY.encode()), (b"x-api-key", CANARY.encode())
    other = (b"x-api-key", "sk-ключ".encode())

    assert authenticated(KEYS, [bearing, bare]) is authenticated(KEYS, [bare, bearing]) is authenticated(KEYS, [bare]) is not None
    for headers in ([bearing, other], [bare, bare], [bearing, bearing, bare], [bearing, bare, bare], [bearing, (b"x-api-key", b"")]):
        assert authenticated(KEYS, headers) is None


@settings(deadline=None)
@given(values=st.lists(st.tuples(st.sampled_from((b"authorization", b"x-api-key")), st.binary(max_size=40)), max_size=4))
def test_no_two_headers_are_a_crash(values: list[Header]) -> None:
    assert authenticated(KEYS, values) is None
